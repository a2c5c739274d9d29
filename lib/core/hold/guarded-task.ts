import { LockLostError } from '../../api/errors.js';
import type { LossPolicy } from '../../api/lock-options.js';
import type { ReleaseResult } from '../../api/lock.js';
import { after, isPromiseLike, promised } from '../toolkit/answer.js';
import type { GrantedLock } from './granted-lock.js';
import { lostError } from './hold.js';
import type { Answer } from '../../api/lock-provider.js';
import { runUnder } from './owner-context.js';

/** How a task ended. */
export type Outcome<T> =
  { readonly status: 'fulfilled'; readonly value: T } | { readonly status: 'rejected'; readonly reason: unknown };

type Task<T> = (lock: GrantedLock) => T | PromiseLike<T>;

/**
 * Runs `task` under `lock`, then releases the lock. The task's own value or error passes through, unless the lock was
 * lost meanwhile and `onLost` says otherwise; a release that fails never replaces it.
 *
 * Awaits only what has to be awaited, see answer.ts.
 *
 * @param check throws for a value that the task must not give; it then counts as failed.
 */
export async function runGuarded<T>(
  lock: GrantedLock,
  task: Task<T>,
  onLost: LossPolicy,
  check?: (value: T) => void,
): Promise<T> {
  if (onLost === 'throw-early') return runUntilLost(lock, task, check);
  let outcome: Outcome<T>;
  try {
    const result = runUnder(lock, () => task(lock));
    const value = isPromiseLike(result) ? await result : result;
    check?.(value);
    outcome = { status: 'fulfilled', value };
  } catch (reason) {
    outcome = { status: 'rejected', reason };
  }
  const result = conclude(lock, outcome, onLost);
  return isPromiseLike(result) ? await result : result;
}

/** Releases `lock` after work that ended with `outcome`, and gives the value or throws the error that the caller gets. */
export function endGuarded<T>(lock: GrantedLock, outcome: Outcome<T>, onLost: LossPolicy): Promise<T> {
  return promised(() => conclude(lock, outcome, onLost));
}

async function runUntilLost<T>(lock: GrantedLock, task: Task<T>, check?: (value: T) => void): Promise<T> {
  const checked = async (): Promise<T> => {
    const value = await task(lock);
    check?.(value);
    return value;
  };
  const running = runUnder(lock, checked).then(
    (value): Outcome<T> => ({ status: 'fulfilled', value }),
    (reason: unknown): Outcome<T> => ({ status: 'rejected', reason }),
  );
  const loss = new Promise<LockLostError>((resolve) => {
    lock.whenLost(resolve);
  });
  const first = await Promise.race([running, loss]);
  if (first instanceof LockLostError) {
    // The task runs on with its signal aborted; what becomes of it concerns nobody any more.
    void running.then(() => lock.end(true));
    throw first;
  }
  return conclude(lock, first, 'throw');
}

function conclude<T>(lock: GrantedLock, outcome: Outcome<T>, onLost: LossPolicy): Answer<T> {
  const released = lock.end(outcome.status === 'rejected');
  // Looked at in this very tick: what happens to an outer lock later does not concern this task.
  const lost = lock.lostError;
  const resultAfter = (release: ReleaseResult): T => {
    if (onLost !== 'ignore' && (lost !== undefined || release === 'lost')) {
      const { message, key, provider, reason, cause } = lost ?? releaseErrorOf(lock);
      throw new LockLostError(message, { key, provider, reason, cause, outcome });
    }
    if (outcome.status === 'rejected') throw outcome.reason;
    return outcome.value;
  };
  return after(released, resultAfter);
}

function releaseErrorOf({ holds }: GrantedLock): LockLostError {
  for (const { releaseError } of holds) if (releaseError) return releaseError;
  // A nested entry whose outer lock was lost in the tick of its end.
  return lostError(holds[0].subject, 'revoked');
}
