import HANDOFF from './handoff.lua.js';
import JOB_RECORD from './job-record.lua.js';
import PLAIN_OPERATIONS from './plain-operations.lua.js';
import OPERATIONS from './operations.lua.js';
import RECORDS from './records.lua.js';
import { scriptOf } from '../client/batcher.js';
import { holdersOf, processesOf, queueOf } from '../key-layout.js';

// Each file uses the locals of those before it.
const TEXT = PLAIN_OPERATIONS + RECORDS + HANDOFF + OPERATIONS;

/** The script of the locks: every operation on a lock runs in it. operations.lua lists its arguments. */
export const LOCK_SCRIPT = scriptOf(TEXT, (counter, locks) => [
  processesOf(counter),
  ...locks.flatMap((lock) => [queueOf(lock), holdersOf(lock)]),
]);

/**
 * The same for a Cluster, where PUBLISH goes to every node. Sharded channels came with Redis 7, as did the version number in
 * scripts. Both commands count the receivers on this server alone, and there every process listens for its buckets.
 */
export const CLUSTER_LOCK_SCRIPT = scriptOf(
  TEXT.replaceAll("call('PUBLISH',", "call(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH',"),
);

/** The script of the records of jobs. */
export const RECORD_SCRIPT = scriptOf(JOB_RECORD);
