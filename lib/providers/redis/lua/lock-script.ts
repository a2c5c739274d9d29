import { createHash } from 'node:crypto';
import { HAND_OFF } from './hand-off.js';
import { LONE_OPERATION } from './lone-operation.js';
import { OPERATIONS } from './operations.js';

/** The one script of this provider: every operation on a lock runs in it. See {@link OPERATIONS} for its arguments. */
export const LOCK_SCRIPT = LONE_OPERATION + HAND_OFF + OPERATIONS;

/** By this name the server knows the script once it has run it. */
export const LOCK_SCRIPT_SHA = createHash('sha1').update(LOCK_SCRIPT).digest('hex');
