import { LockLostError } from '../lock/errors.js';
import type { LossPolicy } from '../lock/lock-options.js';
import type { GrantedLock } from './granted-lock.js';
import { lostError } from './hold.js';
import { runUnder } from './owner-context.js';

/**
 * Runs `task` under `lock`, then releases the lock. The task's own value or error passes through, unless the lock was
 * lost meanwhile and `onLost` says otherwise; a release that fails never replaces it.
 */
export async function runGuarded<T>(
  lock: GrantedLock,
  task: (lock: GrantedLock) => T | PromiseLike<T>,
  onLost: LossPolicy,
): Promise<T> {
  if (onLost === 'throw-early') return runUntilLost(lock, task);
  return endGuarded(lock, await outcomeOf(lock, task), onLost);
}

/** Releases `lock` after a task that ended with `outcome`, and gives the value or throws the error that the caller gets. */
export async function endGuarded<T>(lock: GrantedLock, outcome: Outcome<T>, onLost: LossPolicy): Promise<T> {
  const lostBefore = lock.lostError;
  const released = await lock.end(outcome.status === 'rejected');
  if (onLost !== 'ignore' && (lostBefore !== undefined || released === 'lost')) {
    const { message, key, provider, reason, cause } = lostBefore ?? lostError(lock.holds[0].subject, 'revoked');
    throw new LockLostError(message, { key, provider, reason, cause, outcome });
  }
  if (outcome.status === 'rejected') throw outcome.reason;
  return outcome.value;
}

async function runUntilLost<T>(lock: GrantedLock, task: (lock: GrantedLock) => T | PromiseLike<T>): Promise<T> {
  const running = outcomeOf(lock, task);
  const loss = new Promise<LockLostError>((resolve) => {
    lock.whenLost(resolve);
  });
  const first = await Promise.race([running, loss]);
  if (first instanceof LockLostError) {
    // The task runs on with its signal aborted; what becomes of it concerns nobody any more.
    void running.then(() => lock.end(true));
    throw first;
  }
  return endGuarded(lock, first, 'throw');
}

type Outcome<T> =
  { readonly status: 'fulfilled'; readonly value: T } | { readonly status: 'rejected'; readonly reason: unknown };

async function outcomeOf<T>(lock: GrantedLock, task: (lock: GrantedLock) => T | PromiseLike<T>): Promise<Outcome<T>> {
  try {
    return { status: 'fulfilled', value: await runUnder(lock, () => task(lock)) };
  } catch (reason) {
    return { status: 'rejected', reason };
  }
}
