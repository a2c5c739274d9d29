import { LockTimeoutError } from '../lock/errors.js';
import type { LossPolicy } from '../lock/lock-options.js';
import { isPromiseLike } from '../engine/answer.js';
import type { GrantedLock } from '../engine/granted-lock.js';
import type { Answer } from '../engine/lock-provider.js';
import type { LockedMethod } from './locked-method.js';

/** The lock of one call; or what the call answers instead, because the lock stayed busy. */
export type CallLock =
  { readonly lock: GrantedLock; readonly onLost: LossPolicy } | { readonly lock: undefined; readonly instead: unknown };

/**
 * Takes the lock of one call of a decorated method.
 *
 * @throws what `onBusy` says for a busy lock, and every other lock error.
 */
export function lockForCall(
  method: LockedMethod,
  self: unknown,
  args: readonly unknown[],
  signal?: AbortSignal,
): Answer<CallLock> {
  const service = method.serviceFor(self);
  const plan = method.planFor(service.manager);
  const keys = method.keysOf(service, self, args);
  const granted = (lock: GrantedLock): CallLock => ({ lock, onLost: plan.settings.onLost });
  const refused = (error: unknown): Answer<CallLock> => {
    if (!(error instanceof LockTimeoutError)) throw error;
    const instead = method.busy(error, service, keys, args);
    return Promise.resolve(instead).then((value) => ({ lock: undefined, instead: value }));
  };
  try {
    const answer = service.manager.acquirePlanned(plan, keys, signal);
    return isPromiseLike(answer) ? answer.then(granted, refused) : granted(answer);
  } catch (error) {
    return refused(error);
  }
}
