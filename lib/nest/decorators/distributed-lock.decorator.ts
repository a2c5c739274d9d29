import type { Observable } from 'rxjs';
import { LockConfigError } from '../../api/errors.js';
import type { KeyFunction } from '../../key/key-function.js';
import { decoratedMethod, copyMethodMetadata } from '../../core/toolkit/decorated-method.js';
import type { LossPolicy } from '../../api/lock-options.js';
import type {
  BusyContext,
  BusyHandler,
  DistributedLockOptions,
  LossContext,
  LossHandler,
} from '../methods/distributed-lock-options.js';
import { lockOfRun, type RunOnceOptions } from '../../recipes/run-once.js';
import type { Configurable, FromConfig } from '../methods/decorator-options.js';
import { lockedMethodsBehind, recordLockedMethod } from '../methods/lock-metadata.js';
import { lockedCall } from '../methods/locked-call.js';
import { LockedMethod } from '../methods/locked-method.js';
import type { KeySource } from '../methods/method-key.js';
import { reserveServiceSlot } from '../service/service-slot.js';

/** What a decorated method may give: the lock is held until it has settled, completed or ended. */
export type LockableResult = PromiseLike<unknown> | Observable<unknown> | AsyncGenerator<unknown, unknown, never>;

/** The target of a decorator on an instance method. That of a static method is a class, which has a prototype. */
export type Prototype = object & { prototype?: 'A static method cannot be locked: make it a method of a provider' };

/** Nothing more, if a method `M` has a result `R` that a lock can wait for, and otherwise a sentence, which the compiler shows. */
type Waits<M extends (...args: never[]) => unknown, R = LockableResult> =
  ReturnType<M> extends R
    ? unknown
    : 'A locked method must return a Promise, an Observable or an async generator: make it async';

/** As many parameters as `A` must get: those that may be `undefined` a call may leave out. */
type Needed<A extends readonly unknown[]> = A extends readonly [infer First, ...infer Others]
  ? undefined extends First
    ? unknown[]
    : [unknown, ...Needed<Others>]
  : unknown[];

/** Of a list of parameters, only how many there are, and which may be left out. */
type Counted<P extends readonly unknown[]> = { [I in keyof P]: unknown };

/** Nothing more, if a method `M` has as many parameters as `A` needs, and otherwise what no descriptor is. */
type Supplies<
  M extends (...args: never[]) => unknown,
  A extends readonly unknown[],
> = number extends Parameters<M>['length']
  ? unknown
  : Counted<Parameters<M>> extends Needed<A>
    ? unknown
    : { parameters: 'fewer than the key or signal function asks for' };

/**
 * What the descriptor of a method `M` must be, so that a function of the parameters `A` can be called with its arguments. `P` infers
 * the parameters of the method: written out as [...A, ...never[]] they would be compared the other way round, and the function could
 * not ask for less than them.
 */
type Accepts<
  M extends (...args: never[]) => unknown,
  A extends readonly unknown[],
  P extends readonly unknown[],
> = Supplies<M, A> & { value?: (...args: P) => unknown };

/**
 * What a class must be for a handler `H` that gets a `C`: the class of its `this`, or one with a method of that name, unless it is one of
 * the `Words`.
 */
type ClassFor<H, Words, C> = H extends Words | undefined
  ? unknown
  : H extends string
    ? string extends H
      ? unknown
      : Record<H, (context: C) => unknown>
    : [ThisParameterType<H>] extends [never]
      ? unknown
      : ThisParameterType<H>;

/** The handlers of a call, in the types that tell what they want of the class. */
interface HandlerOptions<B, L> {
  onBusy?: B | BusyHandler | undefined;
  onLost?: L | LossPolicy | LossHandler | undefined;
}

/** What a function of the configuration may give: not how the method is wrapped. */
type ConfiguredLockOptions<S extends readonly unknown[]> = FromConfig<
  Omit<DistributedLockOptions, 'around' | 'signal' | 'onBusy' | 'onLost'>
> &
  Pick<DistributedLockOptions<S>, 'signal'>;

/**
 * Decorates methods whose parameters begin with `A`, those of the key, and with `S`, those of `signal`, in a class that is a `T`, as its
 * handlers want.
 */
export interface LockDecorator<
  A extends readonly unknown[] = readonly [],
  S extends readonly unknown[] = readonly [],
  T = unknown,
> {
  // Fits no method. With a second signature TypeScript compares without type parameters, so that `applyDecorators()`,
  // which wants decorators for methods of any type, takes this one. Of more than three that do not fit, the compiler names the last alone.
  /* eslint-disable @typescript-eslint/unified-signatures -- how many there are is what counts */
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  /* eslint-enable @typescript-eslint/unified-signatures */
  <
    M extends (...args: never[]) => unknown,
    P extends readonly [...A, ...unknown[]],
    Q extends readonly [...S, ...unknown[]],
  >(
    target: Prototype & T,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> & Waits<M> & Accepts<M, A, P> & Accepts<M, S, Q>,
  ): void;
}

/** As {@link LockDecorator}, for methods whose result may be `undefined`: a skipped call has none. */
export interface SkippableLockDecorator<
  A extends readonly unknown[] = readonly [],
  S extends readonly unknown[] = readonly [],
  T = unknown,
> {
  <
    M extends (...args: never[]) => Observable<unknown> | AsyncGenerator<unknown, unknown, never>,
    P extends readonly [...A, ...unknown[]],
    Q extends readonly [...S, ...unknown[]],
  >(
    target: Prototype & T,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> & Accepts<M, A, P> & Accepts<M, S, Q>,
  ): void;
  // Of more than three signatures that do not fit, the compiler names the last alone.
  /* eslint-disable @typescript-eslint/unified-signatures -- as above */
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  /* eslint-enable @typescript-eslint/unified-signatures */
  <
    M extends (...args: never[]) => unknown,
    P extends readonly [...A, ...unknown[]],
    Q extends readonly [...S, ...unknown[]],
  >(
    target: Prototype & T,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> &
      Waits<M, PromiseLike<unknown>> &
      Accepts<M, A, P> &
      Accepts<M, S, Q> & {
        // Written as a setter, since only there must `undefined` be assignable to the method's result.
        set?: (method: (...args: unknown[]) => Promise<undefined>) => void;
      },
  ): void;
}

/**
 * Runs the method under a lock, on every instance that Nest makes of the class.
 *
 * Async methods hold it until they settle, async generators from the first value to the end, methods that return an
 * Observable for the time of each subscription. Composes with other decorators in any order; of two that wrap the
 * method, the upper one is outside: put `@DistributedLock` above `@Transactional`, so that the commit comes before the
 * release.
 *
 * A consumer that leaves a generator while it works on its next value aborts `currentLock().signal`. JavaScript cannot interrupt a
 * generator that ignores the signal, so such a generator holds the lock up to its next value.
 *
 * The branches of one `Promise.all` that have the lock in hand are one owner: the lock does not keep them apart.
 *
 * @param key a template such as `order:#{order.id}`, several of them, or a function of the method's arguments. Several
 * keys are taken in sorted order, all or nothing. `#{class}` is the class that declares the method, also in its subclasses, and
 * bundlers rename classes: write a name that must outlive a build as text.
 * A template or an option that cannot work fails the boot of the application.
 * @param options a function gets the module's `config`, once, at boot: `(config: ConfigService) => ({ lease: config.get('LOCK_LEASE') })`.
 * @throws LockConfigError at decoration for a method that cannot be locked.
 */
// One signature: for a mistaken option TypeScript reports the last of several overloads, whose key is of another kind.
export function DistributedLock<
  A extends readonly unknown[] = readonly [],
  B extends DistributedLockOptions['onBusy'] = undefined,
  S extends readonly unknown[] = readonly [],
  L extends DistributedLockOptions['onLost'] = undefined,
>(
  key: string | readonly string[] | KeyFunction<A>,
  options?:
    | (DistributedLockOptions<S> & HandlerOptions<B, L>)
    | ((config: never) => ConfiguredLockOptions<S> & HandlerOptions<B, L>),
): 'skip' extends B
  ? SkippableLockDecorator<A, S, ClassFor<L, LossPolicy, LossContext>>
  : LockDecorator<A, S, ClassFor<B, 'throw' | 'skip', BusyContext> & ClassFor<L, LossPolicy, LossContext>>;
export function DistributedLock(key: KeySource, options: Configurable<DistributedLockOptions> = {}): LockDecorator {
  // Without parentheses, its second argument is the name of the method.
  if (!['object', 'function'].includes(typeof options) || (options as unknown) === null) {
    throw new LockConfigError(
      "The options of @DistributedLock must be an object: write @DistributedLock('order:#{order.id}', { wait: '2s' }).",
    );
  }
  return (target: object, name: string | symbol, descriptor: PropertyDescriptor) => {
    const { name: place, original, kind } = decoratedMethod('@DistributedLock', target, name, descriptor);
    if (typeof target === 'function') {
      throw new LockConfigError(
        `${place} is static, and Nest injects no lock service into a class: make it an instance method of a provider.`,
      );
    }
    const method = new LockedMethod(target, name, original, key, options, lockedMethodsBehind(original));
    const wrapper = lockedCall(method, original, kind);
    copyMethodMetadata(wrapper, original);
    recordLockedMethod(target, wrapper, method);
    reserveServiceSlot(target);
    descriptor.value = wrapper;
  };
}

/**
 * Runs the method once in the whole fleet: the process that gets the lock runs it, the others skip it.
 * The same as `@DistributedLock(key, { wait: 0, onBusy: 'skip', minHold: atLeast, maxHold: atMost })`.
 *
 * @example
 * ```ts
 * @Cron('0 3 * * *')
 * @RunOnce('nightly-report', { atLeast: '1m' })
 * async report() {}
 * ```
 */
export function RunOnce(key: string, options: Configurable<RunOnceOptions>): SkippableLockDecorator {
  const example = "@RunOnce('nightly-report', { atLeast: '1m' })";
  const lockOf = (given: RunOnceOptions) => ({ ...lockOfRun(given, '@RunOnce', example), onBusy: 'skip' as const });
  // What configuration gives is checked with the options of the lock.
  return DistributedLock(
    key,
    typeof options === 'function' ? (config: never) => lockOf(options(config) as RunOnceOptions) : lockOf(options),
  );
}
