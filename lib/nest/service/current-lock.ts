import { LockConfigError } from '../../api/errors.js';
import type { Lock } from '../../api/lock.js';
import { surroundingLocks } from '../../core/hold/granted-lock.js';

/**
 * The innermost lock around the caller, or the innermost lock on `key`. Use this in methods decorated with
 * `@DistributedLock`, which don't get the lock as an argument.
 *
 * @example `const { signal, fencingToken } = currentLock();`
 * @throws LockConfigError outside a lock or after its release.
 */
export function currentLock(key?: string): Lock {
  const lock = surroundingLocks().find(({ keys }) => key === undefined || keys.includes(key));
  if (lock) return lock;
  throw new LockConfigError(
    key === undefined
      ? 'currentLock() was called outside any lock, or after its release: call it in a method with @DistributedLock or in a withLock() task.'
      : `currentLock("${key.slice(0, 200)}") was called outside a lock on that key.`,
  );
}
