import type { LockOptions } from '../../api/lock-options.js';
import type { LockBusyError } from '../../api/errors.js';

/** What an `onBusy` handler gets. */
export interface BusyContext {
  /** The keys that the call wanted, sorted. */
  readonly keys: readonly string[];
  readonly provider: string;
  /** The decorated method, such as `OrderService.pay`. */
  readonly method: string;
  /** The arguments of the call. */
  readonly args: readonly unknown[];
  /** What would be thrown by default. */
  readonly error: LockBusyError;
}

/** Answers the call in place of the method. */
export type BusyHandler = (busy: BusyContext) => unknown;

/** Options of `@DistributedLock`. `S` are the parameters of `signal`. */
export interface DistributedLockOptions<S extends readonly unknown[] = never[]> extends Omit<LockOptions, 'signal'> {
  /**
   * Takes the caller's `AbortSignal` out of the arguments of the call. It ends the wait: the call rejects with `signal.reason` and
   * leaves nothing behind. It does not end a hold. `undefined`: this call cannot be canceled.
   *
   * @example `signal: (order: Order, signal?: AbortSignal) => signal`
   */
  signal?: ((...args: S) => AbortSignal | undefined) | undefined;
  /**
   * What a call does when the lock stays busy.
   *
   * - `throw` (default): `LockBusyError`.
   * - `skip`: the method does not run and the call resolves to `undefined`; `wait` then defaults to 0. Compiles only for
   *   methods whose result may be undefined.
   * - a function: its result, or what it throws, is that of the call.
   *
   * There is no way to run the method without its lock.
   */
  onBusy?: 'throw' | 'skip' | BusyHandler | undefined;
  /**
   * What the lock is around. `method` (default): the decorated method. `request`: handlers only; `LockInterceptor` takes
   * the lock before pipes and inner interceptors and holds it until the response is complete. The key then comes from
   * `#{request…}` and `#{ctx…}`, since there are no arguments yet.
   */
  around?: 'method' | 'request' | undefined;
}
