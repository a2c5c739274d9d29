import HANDOFF from './handoff.lua.js';
import JOB_RECORD from './job-record.lua.js';
import PLAIN_OPERATIONS from './plain-operations.lua.js';
import OPERATIONS from './operations.lua.js';
import RECORDS from './records.lua.js';
import { scriptOf } from '../client/batcher.js';
import { holdersOf, processesOf, queueOf } from '../key-layout.js';

// Each file uses locals from the files before it.
const TEXT = PLAIN_OPERATIONS + RECORDS + HANDOFF + OPERATIONS;

/** The lock script, which runs every operation on a lock. operations.lua lists its arguments. */
export const LOCK_SCRIPT = scriptOf(TEXT, (counter, locks) => [
  processesOf(counter),
  ...locks.flatMap((lock) => [queueOf(lock), holdersOf(lock)]),
]);

/**
 * The lock script for a Cluster, where PUBLISH is sent to every node. Redis 7 introduced sharded channels and gave
 * scripts the version number. Both commands only count the receivers on this server, where every process has
 * subscriptions for the server's buckets.
 */
export const CLUSTER_LOCK_SCRIPT = scriptOf(
  TEXT.replaceAll("'PUBLISH'", "redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH'"),
);

/** The script for job records. */
export const RECORD_SCRIPT = scriptOf(JOB_RECORD);
