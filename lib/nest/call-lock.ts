import { LockTimeoutError } from '../lock/errors.js';
import type { LossPolicy } from '../lock/lock-options.js';
import type { GrantedLock } from '../engine/granted-lock.js';
import type { LockedMethod } from './locked-method.js';

/** The lock of one call; or what the call answers instead, because the lock stayed busy. */
export type CallLock =
  { readonly lock: GrantedLock; readonly onLost: LossPolicy } | { readonly lock: undefined; readonly instead: unknown };

/**
 * Takes the lock of one call of a decorated method.
 *
 * @throws what `onBusy` says for a busy lock, and every other lock error.
 */
export async function lockForCall(
  method: LockedMethod,
  self: unknown,
  args: readonly unknown[],
  signal?: AbortSignal,
): Promise<CallLock> {
  const service = method.serviceFor(self);
  const plan = method.planFor(service.manager);
  const keys = method.keysOf(service, self, args);
  try {
    const lock = await service.manager.acquirePlanned(plan, keys, signal);
    return { lock, onLost: plan.settings.onLost };
  } catch (error) {
    if (error instanceof LockTimeoutError) {
      return { lock: undefined, instead: await method.busy(error, service, keys, args) };
    }
    throw error;
  }
}
