import { type Duration, toMilliseconds } from '../api/duration.js';
import { LockBusyError, LockConfigError } from '../api/errors.js';
import type { LockOptions } from '../api/lock-options.js';
import type { Lock } from '../api/lock.js';
import { runGuarded } from '../core/hold/guarded-task.js';
import { publishSkipped } from '../core/acquire/lock-plan.js';
import type { GrantedLock } from '../core/hold/granted-lock.js';
import type { LockManager } from '../core/lock-manager.js';
import { assertTask } from '../core/toolkit/given-options.js';
import type { LockKey } from '../key/lock-key.js';

/** How often a job may run. */
export interface RunOnceOptions {
  /**
   * The shortest time between two runs, in ms. Processes start a job a little apart; the key stays locked for this time, so an instance
   * with a slow clock skips the run. At most 24.8 days. 0 can run twice; row, advisory and ZooKeeper locks know only 0.
   */
  atLeast: Duration;
  /** The longest time that a run may take, in ms; then its signal aborts and another may start. At most 24.8 days, or `Infinity`. Default: `maxHold` of the module's `defaults`, or `Infinity`. */
  atMost?: Duration | undefined;
  /** Name of the provider. Default: the module's default provider. */
  provider?: string | undefined;
}

/** Whether the job ran here, and what it gave. */
export type RunOnceResult<T> = { readonly ran: true; readonly value: T } | { readonly ran: false };

type LockOfRun = Pick<LockOptions, 'wait' | 'minHold' | 'maxHold' | 'provider'>;

/** The lock of a job: it is not waited for, and kept for `atLeast`. @throws LockConfigError without `atLeast`, and for times that cannot be */
export function lockOfRun(options: RunOnceOptions, caller: string, example: string): LockOfRun {
  const { atLeast, atMost, provider, ...others } = { ...options };
  if ((atLeast as unknown) === undefined) {
    throw new LockConfigError(`${caller} has no "atLeast", the shortest time between two runs: write ${example}.`);
  }
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) {
    throw new LockConfigError(`${caller} has no option "${unknown}", but only: atLeast, atMost, provider.`);
  }
  // Here, because the errors of a lock name its own options.
  const minHold = toMilliseconds(atLeast, 'atLeast');
  const maxHold = atMost === undefined ? undefined : toMilliseconds(atMost, 'atMost', { min: 1, infinite: true });
  if (maxHold !== undefined && minHold > maxHold) {
    throw new LockConfigError(
      `Option "atLeast" is ${minHold} ms, longer than "atMost", which is ${maxHold} ms: lower "atLeast", or raise "atMost".`,
    );
  }
  return { wait: 0, minHold, maxHold, provider };
}

/** Runs `task` in the process that gets the lock; in the others it does not run. @throws what `task` throws, and every lock error but busy */
export async function runOnce<T>(
  manager: LockManager,
  key: LockKey,
  task: (lock: Lock) => T | PromiseLike<T>,
  options: RunOnceOptions,
): Promise<RunOnceResult<T>> {
  assertTask('runOnce()', task);
  const plan = manager.plan(lockOfRun(options, 'runOnce()', "locks.runOnce('report', task, { atLeast: '1m' })"));
  let lock: GrantedLock;
  try {
    lock = await manager.acquirePlanned(plan, key);
  } catch (error) {
    if (!(error instanceof LockBusyError)) throw error;
    publishSkipped(plan, error.key, 'busy');
    return { ran: false };
  }
  return { ran: true, value: await runGuarded(lock, task, plan.settings.onLost) };
}
