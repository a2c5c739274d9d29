import { createHash } from 'node:crypto';
import { HAND_OFF } from './hand-off.js';
import { LONE_OPERATION } from './lone-operation.js';
import { OPERATIONS } from './operations.js';

/** The one script of this provider: every operation on a lock runs in it. See {@link OPERATIONS} for its arguments. */
export const LOCK_SCRIPT = LONE_OPERATION + HAND_OFF + OPERATIONS;

/** By this name the server knows the script once it has run it. */
export const LOCK_SCRIPT_SHA = shaOf(LOCK_SCRIPT);

/** A script as it is sent: by its name, or with its text where the server does not know it. */
export interface Script {
  readonly text: string;
  readonly sha: string;
}

const CLUSTER_TEXT = LOCK_SCRIPT.replaceAll(
  "call('PUBLISH',",
  "call(redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH',",
);

/**
 * The same for a Cluster, where PUBLISH goes to every node. Sharded channels came with Redis 7, as did the version number in
 * scripts. Both commands count the receivers on this server alone, and there every process listens for its buckets.
 */
export const CLUSTER_LOCK_SCRIPT: Script = { text: CLUSTER_TEXT, sha: shaOf(CLUSTER_TEXT) };

function shaOf(text: string): string {
  return createHash('sha1').update(text).digest('hex');
}
