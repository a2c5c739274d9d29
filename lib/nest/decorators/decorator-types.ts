import type { Observable } from 'rxjs';
import type { Configurable } from '../methods/decorator-options.js';
import type { BusyHandler, DistributedLockOptions } from '../methods/distributed-lock-options.js';

// eslint-disable-next-line @typescript-eslint/no-namespace -- the parts of the decorators' types, which need no names of their own in the entry
export declare namespace LockDecorator {
  /** The result of a decorated method: the lock is held until it has settled, completed or ended. */
  type LockableResult = PromiseLike<unknown> | Observable<unknown> | AsyncGenerator<unknown, unknown, never>;

  /** The target of a decorator on a property, which no class is: the compiler shows it as a sentence. */
  type NoProperty = 'A property, such as an arrow function, cannot be decorated: write a method';

  /** The target of a decorator on an instance method. That of a static method is a class, which has a prototype. */
  type Prototype = object & { prototype?: 'A static method cannot be locked: make it a method of a provider' };

  /** Nothing more, if a method `M` has a result `R` that a lock can wait for, and otherwise a sentence, which the compiler shows. */
  type Waits<M extends (...args: never[]) => unknown, R = LockableResult> =
    ReturnType<M> extends R
      ? unknown
      : 'A locked method must return a Promise, an Observable or an async generator: make it async';

  /** Nothing more, if a method `M` may resolve to `undefined`, or has no promise at all, and otherwise a sentence, which the compiler shows. */
  type Skips<M extends (...args: never[]) => unknown> =
    ReturnType<M> extends PromiseLike<unknown>
      ? Promise<undefined> extends ReturnType<M>
        ? unknown
        : 'A skipped call resolves to undefined, so the method must return a Promise of a type that includes undefined'
      : unknown;

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
   * The descriptor that a method `M` must have, so that a function of the parameters `A` can be called with its arguments. `P` infers
   * the parameters of the method: written out as [...A, ...never[]] they would be compared the other way round, and the function could
   * not ask for less than them.
   */
  type Accepts<
    M extends (...args: never[]) => unknown,
    A extends readonly unknown[],
    P extends readonly unknown[],
  > = Supplies<M, A> & { value?: (...args: P) => unknown };

  /** `onBusy`, in the type that tells whether the call may be skipped. */
  interface BusyOption<B> {
    onBusy?: B | BusyHandler | undefined;
  }

  /** The options that a function of the configuration may give: not how the method is wrapped. */
  type ConfiguredLockOptions<S extends readonly unknown[]> = Configurable.Options<
    Omit<DistributedLockOptions, 'around' | 'signal' | 'onBusy'>
  > &
    Pick<DistributedLockOptions<S>, 'signal'>;
}

/** Decorates methods whose parameters begin with `A`, those of the key, and with `S`, those of `signal`. */
export interface LockDecorator<A extends readonly unknown[] = readonly [], S extends readonly unknown[] = readonly []> {
  // Fits no method. With a second signature TypeScript compares without type parameters, so that `applyDecorators()`,
  // which wants decorators for methods of any type, takes this one. Of more than three that do not fit, the compiler names the last alone.
  /* eslint-disable @typescript-eslint/unified-signatures -- how many there are is what counts */
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  // Only this one has as many parameters as the decorator of a property, so the compiler names it there.
  (target: LockDecorator.NoProperty, property: string | symbol): void;
  /* eslint-enable @typescript-eslint/unified-signatures */
  <
    M extends (...args: never[]) => unknown,
    P extends readonly [...A, ...unknown[]],
    Q extends readonly [...S, ...unknown[]],
  >(
    target: LockDecorator.Prototype,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> &
      LockDecorator.Waits<M> &
      LockDecorator.Accepts<M, A, P> &
      LockDecorator.Accepts<M, S, Q>,
  ): void;
}

/** As {@link LockDecorator}, for methods whose result may be `undefined`: a skipped call has none. */
export interface SkippableLockDecorator<
  A extends readonly unknown[] = readonly [],
  S extends readonly unknown[] = readonly [],
> {
  <
    M extends (...args: never[]) => Observable<unknown> | AsyncGenerator<unknown, unknown, never>,
    P extends readonly [...A, ...unknown[]],
    Q extends readonly [...S, ...unknown[]],
  >(
    target: LockDecorator.Prototype,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> & LockDecorator.Accepts<M, A, P> & LockDecorator.Accepts<M, S, Q>,
  ): void;
  // Of more than three signatures that do not fit, the compiler names the last alone.
  (target: never, method: never, descriptor: never): void;
  (target: LockDecorator.NoProperty, property: string | symbol): void;
  <
    M extends (...args: never[]) => unknown,
    P extends readonly [...A, ...unknown[]],
    Q extends readonly [...S, ...unknown[]],
  >(
    target: LockDecorator.Prototype,
    method: string | symbol,
    descriptor: TypedPropertyDescriptor<M> &
      LockDecorator.Waits<M, PromiseLike<unknown>> &
      LockDecorator.Accepts<M, A, P> &
      LockDecorator.Accepts<M, S, Q> &
      LockDecorator.Skips<M>,
  ): void;
}
