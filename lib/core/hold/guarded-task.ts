import { LockLostError } from '../../api/errors.js';
import type { ReleaseResult } from '../../api/lock.js';
import type { LossPolicy } from '../../api/lock-options.js';
import type { GrantedLock } from './granted-lock.js';
import { isReported, lostError, markReported } from './lost-error.js';

/** How a task ended. */
export type Outcome<T> =
  { readonly status: 'fulfilled'; readonly value: T } | { readonly status: 'rejected'; readonly reason: unknown };

/** The result of a task whose lock was lost: by a policy, or by a function that answers instead. */
export type OnLoss<T> = LossPolicy | ((error: LockLostError) => T | PromiseLike<T>);

type Task<T> = (lock: GrantedLock) => T | PromiseLike<T>;

/**
 * Runs `task` under a lock, then releases the lock. A task does not start under a lock that is lost. The task's own value or error
 * passes through, unless the lock was lost meanwhile and `onLost` demands an error; a release that fails never replaces it.
 *
 * @param check throws for a value that the task must not give; it then counts as failed.
 */
export async function runGuarded<T>(
  acquired: GrantedLock | Promise<GrantedLock>,
  task: Task<T>,
  onLost: OnLoss<T>,
  check?: (value: T) => void,
): Promise<T> {
  const lock = acquired instanceof Promise ? await acquired : acquired;
  // The lock may have been lost between the grant and this tick.
  const lost = lock.lostError;
  if (lost) return endUnstarted(lock, lost, onLost);
  let outcome: Outcome<T>;
  try {
    const value = await lock.surround(() => task(lock));
    check?.(value);
    outcome = { status: 'fulfilled', value };
  } catch (reason) {
    outcome = { status: 'rejected', reason };
  }
  const begun = beginRelease(lock, outcome);
  return answerOf(lock, outcome, onLost, begun.lost, begun.released && (await begun.released));
}

async function endUnstarted<T>(lock: GrantedLock, lost: LockLostError, onLost: OnLoss<T>): Promise<T> {
  await lock.releaseAfterTask(true);
  if (typeof onLost === 'function') return await onLost(lost);
  throw lost;
}

/** Releases `lock` after work that ended with `outcome`, and gives the value or throws the error that the caller gets. */
export function endGuarded<T>(lock: GrantedLock, outcome: Outcome<T>, onLost: OnLoss<T>): Promise<T> {
  const { lost, released } = beginRelease(lock, outcome);
  return Promise.resolve(released).then((result) => answerOf(lock, outcome, onLost, lost, result));
}

/** Answers why the lock was lost, and the result of its release if that is to be awaited. */
function beginRelease(lock: GrantedLock, { status }: Outcome<unknown>): BegunRelease {
  const released = lock.releaseAfterTask(status === 'rejected');
  // Read in this very tick, after the look at the clock that precedes each release: what happens to an outer lock later does not concern this task.
  const lost = lock.knownLoss;
  return { lost, released: lock.releasePolicy === 'confirmed' ? released : undefined };
}

interface BegunRelease {
  readonly lost: LockLostError | undefined;
  readonly released: Promise<ReleaseResult> | undefined;
}

function answerOf<T>(
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
  // A nested entry whose outer lock was lost in the tick of its end.
  return lostError(holds[0].subject, 'revoked');
}
