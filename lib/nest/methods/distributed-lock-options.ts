import type { LockDefaults, LockOptions, LossPolicy } from '../../api/lock-options.js';
import type { LockBusyError, LockDeadlockError, LockLostError } from '../../api/errors.js';
import type { MissingRunOptions } from '../../recipes/jobs/missing-runs.js';

/** The argument of an `onBusy` handler. */
export interface BusyContext {
  /** The keys that the call requested, sorted. */
  readonly keys: readonly string[];
  readonly provider: string;
  /** The decorated method, such as `OrderService.pay`. */
  readonly method: string;
  /** The call's arguments. Empty with `around: 'request'`, which takes the lock before the method has any. */
  readonly args: readonly unknown[];
  /**
   * The error that would be thrown by default; a {@link LockDeadlockError} if callers, including this one, waited for
   * each other.
   */
  readonly error: LockBusyError | LockDeadlockError;
}

/** The argument of an `onLost` handler. */
export interface LossContext extends Omit<BusyContext, 'error'> {
  /** The error that would be thrown by default. Its `outcome` says how the method ended. */
  readonly error: LockLostError;
}

/**
 * Provides the call's result in place of the method. `this` is the instance: write
 * `function (this: OrderService, busy) {…}`. With `around: 'request'`, there is no `this`.
 */
export type BusyHandler = (this: never, busy: BusyContext) => unknown;

/**
 * Provides the result of a call whose lock was lost, after the method has ended. `this` is the instance. With
 * `around: 'request'`, there is no `this`.
 */
export type LossHandler = (this: never, loss: LossContext) => unknown;

/** Options of `@DistributedLock`. `S` is the parameter list of `signal`. */
export interface DistributedLockOptions<S extends readonly unknown[] = never[]>
  extends Omit<LockOptions, 'signal' | 'onLost' | 'within'>, Pick<LockDefaults, 'reentrant'> {
  /**
   * Gets the caller's `AbortSignal` from the call's arguments. The signal ends the wait: the call rejects with
   * `signal.reason` and leaves nothing behind. It doesn't end a hold. `undefined` means that this call cannot be
   * canceled.
   *
   * @example `signal: (order: Order, signal?: AbortSignal) => signal`
   */
  signal?: ((...args: S) => AbortSignal | undefined) | undefined;
  /**
   * What happens to a call whose lock stays busy.
   *
   * - `throw` (default): `LockBusyError`, or `LockDeadlockError` if callers waited for each other.
   * - `skip`: the method does not run and the call resolves to `undefined`; `wait` then defaults to 0. Compiles only
   *   for methods whose result may be undefined.
   * - a function: the call ends with its result or error.
   *
   * The method can never run without its lock.
   */
  onBusy?: 'throw' | 'skip' | BusyHandler | undefined;
  /**
   * What the caller gets if the lock is lost while the method runs. Default `throw`.
   *
   * - `throw`: `LockLostError` after the method ends, with its `outcome`.
   * - `ignore`: the method's own value or error.
   * - a function: called after the method. The call returns its result or throws its error. By then, an Observable has
   * sent its values; a result other than `undefined` follows them.
   */
  onLost?: LossPolicy | LossHandler | undefined;
  /**
   * The lock's scope. `method` (default): the decorated method. `request`: only for handlers. `LockRequestInterceptor`
   * acquires the lock before pipes and inner interceptors, and holds it until the response is complete. The key then
   * comes from `#{request…}` and `#{ctx…}`, since there are no arguments yet. A client that does not read a streamed
   * response keeps the lock held until its connection ends: set `maxHold` or an HTTP server timeout.
   */
  around?: 'method' | 'request' | undefined;
}

/** Marks `@RunOnce` options that don't set `minHold`. Uses a symbol, because `@DistributedLock` has no such option. */
export const TICKS = Symbol('options of ticks');

/** The options of a decorated method, for all decorators. */
export interface MethodOptions extends DistributedLockOptions {
  readonly [TICKS]?: MissingRunOptions;
}
