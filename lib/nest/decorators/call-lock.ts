import { LockTimeoutError } from '../../api/errors.js';
import type { LossPolicy } from '../../api/lock-options.js';
import { isPromiseLike } from '../../core/toolkit/answer.js';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import type { Answer } from '../../api/lock-provider.js';
import type { LockService } from '../service/lock.service.js';
import type { LockedMethod } from './locked-method.js';

/** The lock of one call; or what the call answers instead, because the lock stayed busy. */
export type CallLock =
  | { readonly lock: GrantedLock; readonly onLost: LossPolicy }
  | { readonly lock: undefined; readonly instead: unknown; readonly isSkipped: boolean };

/** One call of a decorated method: on what, with what, and whose locks it takes. */
export interface MethodCall {
  readonly service: LockService;
  readonly self: unknown;
  readonly args: readonly unknown[];
}

/**
 * Takes the lock of one call of a decorated method.
 *
 * @throws what `onBusy` says for a busy lock, and every other lock error.
 */
export function lockForCall(method: LockedMethod, call: MethodCall, signal?: AbortSignal): Answer<CallLock> {
  const { manager } = call.service;
  const plan = method.planFor(manager);
  const keys = method.keysOf(call);
  const granted = (lock: GrantedLock): CallLock => ({ lock, onLost: plan.settings.onLost });
  const refused = (error: unknown): Answer<CallLock> => {
    if (!(error instanceof LockTimeoutError)) throw error;
    const instead = method.busy(error, call, keys);
    const isSkipped = method.options.onBusy === 'skip';
    return Promise.resolve(instead).then((value) => ({ lock: undefined, instead: value, isSkipped }));
  };
  try {
    const answer = manager.acquirePlanned(plan, keys, signal);
    return isPromiseLike(answer) ? answer.then(granted, refused) : granted(answer);
  } catch (error) {
    return refused(error);
  }
}
