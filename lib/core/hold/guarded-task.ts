import { LockLostError } from '../../api/errors.js';
import type { ReleaseResult } from '../../api/lock.js';
import type { LossPolicy } from '../../api/lock-options.js';
import type { GrantedLock } from './granted-lock.js';
import { isReported, lostError, markReported } from './lost-error.js';

/** How a task ended. */
export type Outcome<T> =
  { readonly status: 'fulfilled'; readonly value: T } | { readonly status: 'rejected'; readonly reason: unknown };

/** How to handle the loss of the lock: a policy, or a function whose result replaces the task's result. */
export type OnLoss<T> = LossPolicy | ((error: LockLostError) => T | PromiseLike<T>);

type Task<T> = (lock: GrantedLock) => T | PromiseLike<T>;

/**
 * Runs `task` under a lock, then releases the lock. Doesn't start the task if the lock is already lost. Passes on the
 * task's value or error, unless the lock was lost in the meantime and `onLost` is not `ignore`. An unanswered
 * release never overrides the task's outcome.
 */
export async function runGuarded<T>(
  acquired: GrantedLock | Promise<GrantedLock>,
  task: Task<T>,
  onLost: OnLoss<T>,
): Promise<T> {
  const lock = acquired instanceof Promise ? await acquired : acquired;
  // The lock may have been lost between the grant and this tick.
  const lost = lock.lostError;
  if (lost) return endUnstarted(lock, lost, onLost);
  let outcome: Outcome<T>;
  try {
    outcome = { status: 'fulfilled', value: await lock.surround(() => task(lock)) };
  } catch (reason) {
    outcome = { status: 'rejected', reason };
  }
  const { lost: loss, released } = startRelease(lock, outcome);
  return settle(lock, outcome, onLost, loss, released && (await released));
}

/** Releases a lock that was lost before its work started, then settles as the user's call should. */
export async function endUnstarted<T>(lock: GrantedLock, lost: LockLostError, onLost: OnLoss<T>): Promise<T> {
  await lock.releaseAfterTask(true);
  if (typeof onLost === 'function') return await onLost(lost);
  throw lost;
}

/** Releases `lock` after work that ended with `outcome`, then settles as the user's call should. */
export function endGuarded<T>(lock: GrantedLock, outcome: Outcome<T>, onLost: OnLoss<T>): Promise<T> {
  const { lost, released } = startRelease(lock, outcome);
  return Promise.resolve(released).then((result) => settle(lock, outcome, onLost, lost, result));
}

function startRelease(lock: GrantedLock, { status }: Outcome<unknown>): StartedRelease {
  const released = lock.releaseAfterTask(status === 'rejected');
  // Read this in the same tick, because a later loss of the outer lock doesn't affect this task. The release has just
  // checked the clock.
  const lost = lock.knownLoss;
  return { lost, released: lock.releasePolicy === 'confirmed' ? released : undefined };
}

interface StartedRelease {
  readonly lost: LockLostError | undefined;
  /** The release's result, unless the caller doesn't wait for it (`release: 'sent'`). */
  readonly released: Promise<ReleaseResult> | undefined;
}

/** Returns the value or throws the error that the caller gets. */
function settle<T>(
  lock: GrantedLock,
  outcome: Outcome<T>,
  onLost: OnLoss<T>,
  lost: LockLostError | undefined,
  result: ReleaseResult | undefined,
): T | PromiseLike<T> {
  if (onLost !== 'ignore' && (lost !== undefined || result === 'lost')) {
    const loss = lost ?? releaseErrorOf(lock);
    const { message, key, provider, reason, cause } = loss;
    const error = new LockLostError(message, { key, provider, reason, cause, outcome });
    if (isReported(loss)) markReported(error);
    if (typeof onLost === 'function') return onLost(error);
    throw error;
  }
  if (outcome.status === 'rejected') throw outcome.reason;
  return outcome.value;
}

function releaseErrorOf({ holds }: GrantedLock): LockLostError {
  for (const { releaseError } of holds) if (releaseError) return releaseError;
  // The outer lock was lost in the tick in which this nested entry ended.
  return lostError(holds[0].subject, 'revoked');
}
