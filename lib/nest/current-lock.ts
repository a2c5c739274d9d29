import { LockConfigError } from '../lock/errors.js';
import type { Lock } from '../lock/lock.js';
import { surroundingLocks } from '../engine/owner-context.js';

/**
 * The innermost lock around the caller, or the one of `key`: for methods under `@DistributedLock`, which have no lock
 * among their arguments.
 *
 * @throws LockConfigError outside of a lock.
 */
export function currentLock(key?: string): Lock {
  for (const lock of surroundingLocks()) if (key === undefined || lock.keys.includes(key)) return lock;
  throw new LockConfigError(
    key === undefined
      ? 'currentLock() was called outside of any lock: call it in a method with @DistributedLock, or in a task of withLock().'
      : `currentLock("${key.slice(0, 200)}") was called outside of a lock of that key.`,
  );
}
