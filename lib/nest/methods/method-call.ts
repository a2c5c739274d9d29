import { LockConfigError, LockBusyError } from '../../api/errors.js';
import { type LockPlan, publishSkipped } from '../../core/acquire/lock-plan.js';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import type { OnLoss } from '../../core/hold/guarded-task.js';
import { withAbort } from '../../core/toolkit/abort-listeners.js';
import { type LockKey, normalizeKeys } from '../../key/lock-key.js';
import { liveServices } from '../service/live-services.js';
import { serviceInSlot } from '../service/service-slot.js';
import { LockService } from '../service/lock.service.js';
import { currentRequest } from './request-context.js';
import type { BusyContext } from './distributed-lock-options.js';
import type { LockedMethod } from './locked-method.js';

/** The lock of one call; or what the call answers instead, because the lock stayed busy. */
export type CallLock =
  | { readonly lock: GrantedLock; readonly onLost: OnLoss<unknown> }
  | { readonly lock: undefined; readonly instead: unknown; readonly isSkipped: boolean };

/** One call of a decorated method: of which instance, with which arguments, and whose locks it takes. */
export class MethodCall {
  /** @param service default: the service of the application that the instance belongs to. @throws LockConfigError outside of an application */
  constructor(
    private readonly method: LockedMethod,
    private readonly self: unknown,
    private readonly args: readonly unknown[],
    private readonly service: LockService = serviceOf(method, self),
  ) {}

  /**
   * Acquires the lock.
   *
   * @param signal ends the wait, like the signal that the caller may have given
   * @throws what `onBusy` throws for a busy lock, and every other lock error; immediately for a key that cannot be made.
   */
  lock(signal?: AbortSignal): Promise<CallLock> {
    const { method, self, args, service } = this;
    const plan = method.planFor(service);
    const context = (name: string) => service.context[name]?.();
    const keys = method.keysOf({ self, args, request: currentRequest, context });
    if (plan.origin.template === null) service.manager.missingValues.check(keys, method.name);
    const acquire = (either?: AbortSignal) => service.manager.acquirePlanned(plan, keys, { signal: either });
    const given = method.signalOf(service, self, args);
    const acquired = signal && given ? underBoth(signal, given, acquire) : acquire(signal ?? given);
    return acquired.then(
      (lock) => ({ lock, onLost: this.#onLost(plan, keys) }),
      async (error: unknown) => {
        if (!(error instanceof LockBusyError)) throw error;
        const instead = await this.#whenBusy(error, keys);
        return { lock: undefined, instead, isSkipped: method.optionsIn(service).onBusy === 'skip' };
      },
    );
  }

  /** What the call answers whose lock stayed busy; throws what is to be thrown. */
  #whenBusy(error: LockBusyError, keys: LockKey): unknown {
    const { method, self, service } = this;
    const plan = method.planFor(service);
    if (method.optionsIn(service).onBusy === 'skip') {
      publishSkipped(plan, error.key);
      return undefined;
    }
    const handler = method.handlerOf(service, 'onBusy', self);
    if (!handler) throw error;
    return handler({ ...this.#described(plan, keys), error });
  }

  #onLost(plan: LockPlan, keys: LockKey): OnLoss<unknown> {
    const handler = this.method.handlerOf(this.service, 'onLost', this.self);
    return handler ? (error) => handler({ ...this.#described(plan, keys), error }) : plan.settings.onLost;
  }

  #described({ core }: LockPlan, keys: LockKey): Omit<BusyContext, 'error'> {
    return { keys: normalizeKeys(keys), provider: core.name, method: this.method.name, args: this.args };
  }
}

/** Works under a signal that aborts with either of two. `AbortSignal.any` of Node 20 leaves an entry with a signal that outlives the call. */
function underBoth<T>(one: AbortSignal, other: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const passOn = (signal: AbortSignal) => () => {
    controller.abort(signal.reason);
  };
  return withAbort(one, passOn(one), () => withAbort(other, passOn(other), () => work(controller.signal)));
}

/** The lock service for a call on `self`. @throws LockConfigError outside of a running application. */
export function serviceOf({ name }: { readonly name: string }, self: unknown): LockService {
  const service: unknown = serviceInSlot(self) ?? liveServices.only;
  if (service instanceof LockService) return service;
  if (service !== undefined) {
    // Otherwise an automatic mock would answer the call instead of the method.
    throw new LockConfigError(
      `${name} was given a mock as its lock service, under which it would not run: provide LockService with provideLockServiceStub(), or import DistributedLockTestingModule, so that useMocker() is not asked for it.`,
    );
  }
  throw new LockConfigError(
    `${name} was called before Nest has injected its lock service, or outside of Nest (live applications: ${liveServices.count}): ` +
      'import DistributedLockModule.forRoot() and let Nest make the instance, or provide LockService with provideLockServiceStub() in a unit test.',
  );
}
