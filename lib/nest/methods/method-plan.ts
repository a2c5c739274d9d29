import type { LockOptions, LossPolicy } from '../../api/lock-options.js';
import { LockConfigError } from '../../api/errors.js';
import type { LockPlan } from '../../core/plan/lock-plan.js';
import type { ScheduledJob } from '../../recipes/jobs/scheduled-job.js';
import type { LockService } from '../service/lock.service.js';
import type { ClassLockDefaults } from './class-defaults.js';
import { type BusyHandler, type LossHandler, type MethodOptions, TICKS } from './distributed-lock-options.js';
import type { MethodKey } from './method-key.js';
import { jobOf, type MethodDeclaration } from './method-ticks.js';

/** A decorated method in one application: everything that its calls need, with the options of its class and the module, checked. */
export class MethodPlan {
  readonly lock: LockPlan;
  readonly onBusy: 'throw' | 'skip' | BusyHandler;
  readonly onLost: LossPolicy | LossHandler;
  /** Set for a method that runs once for each tick. */
  readonly job: ScheduledJob | undefined;
  /** The values for `#{ctx.name}`. */
  readonly context: (name: string) => unknown;
  /** For messages, such as `OrderService.pay`. */
  readonly name: string;
  readonly key: MethodKey;
  readonly #signal: ((...args: never[]) => AbortSignal | undefined) | undefined;

  /** @throws LockConfigError for options that cannot work in this application */
  constructor(
    method: MethodDeclaration,
    options: MethodOptions,
    classDefaults: ClassLockDefaults | undefined,
    readonly service: LockService,
  ) {
    const { name, key } = method;
    this.name = name;
    this.key = key;
    // The signal is one of each call.
    const own = { ...withoutUndefined(options), signal: undefined };
    // As with tryAcquire(), only the call itself can override it: skipping after a wait is rarely what is meant.
    if (own.onBusy === 'skip') own.wait ??= 0;
    // A handler gets the error that would be thrown.
    if (typeof own.onLost === 'function') own.onLost = 'throw';
    // The decorator has options that are none of a lock.
    const ofLock = { ...(own as LockOptions), onBusy: undefined, around: undefined };
    const { reentrant, ...lockOptions } = { ...classDefaults, ...ofLock };
    this.lock = service.manager.plan(lockOptions, { method: name, template: key.template }, reentrant);
    this.onBusy = options.onBusy ?? 'throw';
    this.onLost = typeof options.onLost === 'function' ? options.onLost : this.lock.settings.onLost;
    const { [TICKS]: looks } = options;
    this.job = looks && jobOf(method, looks, this.lock, service);
    this.context = (value) => service.context[value]?.();
    this.#signal = options.signal;
  }

  /** The signal that ends the wait of one call, if it has one. @throws LockConfigError for what is no `AbortSignal` */
  signalOf(self: unknown, args: readonly unknown[]): AbortSignal | undefined {
    const signal: unknown = this.#signal?.apply(self, args as never[]);
    if (signal === undefined || signal instanceof AbortSignal) return signal;
    throw new LockConfigError(
      `Option "signal" of ${this.name} gave ${signal === null ? 'null' : `a ${typeof signal}`}, but must give an AbortSignal, or undefined where a call has none.`,
    );
  }
}

// An option that is set to undefined is left open: spread as it is, it would hide the default.
function withoutUndefined<T extends object>(options: T): T {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as T;
}
