import type { Observable } from 'rxjs';
import type { Configurable } from '../methods/decorator-options.js';
import type { BusyHandler, DistributedLockOptions } from '../methods/distributed-lock-options.js';

// eslint-disable-next-line @typescript-eslint/no-namespace -- the parts of the decorators' types do not need their own names in the entry
export declare namespace LockDecorator {
  /** A decorated method's result: the lock is held until it settles, completes, or ends. */
  type LockableResult = PromiseLike<unknown> | Observable<unknown> | AsyncGenerator<unknown, unknown, never>;

  /** A property decorator's target. No class matches it, so the compiler shows this sentence. */
  type NoProperty = 'A property, such as an arrow function, cannot be decorated: write a method';

  /**
   * An instance method decorator's target. A static method's target is a class, which has a prototype.
   */
  type Prototype = object & { prototype?: 'A static method cannot be locked: make it a method of a provider' };

  /**
   * `unknown` if a lock can wait for method `M`'s result `R`; otherwise, a sentence that the compiler shows.
   */
  type Waits<M extends (...args: never[]) => unknown, R = LockableResult> =
    ReturnType<M> extends R
      ? unknown
      : 'A locked method must return a Promise, an Observable, or an async generator: make it async';

  /**
   * `unknown` if the method `M` may resolve to `undefined`, or does not return a promise; otherwise, a sentence that
   * the compiler shows.
   */
  type Skips<M extends (...args: never[]) => unknown> =
    ReturnType<M> extends PromiseLike<unknown>
      ? Promise<undefined> extends ReturnType<M>
        ? unknown
        : 'A skipped call resolves to undefined, so the method must return a Promise of a type that includes undefined'
      : unknown;

  /** The parameters of `A` that a call must pass. It may omit those that can be `undefined`. */
  type Needed<A extends readonly unknown[]> = A extends readonly [infer First, ...infer Others]
    ? undefined extends First
      ? unknown[]
      : [unknown, ...Needed<Others>]
    : unknown[];

  /** A parameter list without types: only how many parameters there are and which are optional. */
  type Counted<P extends readonly unknown[]> = { [I in keyof P]: unknown };

  /**
   * `unknown` if the method `M` has the number of parameters that `A` needs; otherwise, a type that no descriptor
   * matches.
   */
  type Supplies<
    M extends (...args: never[]) => unknown,
    A extends readonly unknown[],
  > = number extends Parameters<M>['length']
    ? unknown
    : Counted<Parameters<M>> extends Needed<A>
      ? unknown
      : { parameters: 'fewer than the key or signal function requires' };

  /**
   * The descriptor of a method `M` whose arguments can be passed to a function with the parameters `A`. `P` infers the
   * method's parameters. If they were written out as [...A, ...never[]], they would be compared in the other direction,
   * and the function could not take fewer parameters than the method.
   */
  type Accepts<
    M extends (...args: never[]) => unknown,
    A extends readonly unknown[],
    P extends readonly unknown[],
  > = Supplies<M, A> & { value?: (...args: P) => unknown };

  /** `onBusy`, whose type decides whether the call may be skipped. */
  interface BusyOption<B> {
    onBusy?: B | BusyHandler | undefined;
  }

  /** The options that may come from the configuration: all except the ones that decide how the method is wrapped. */
  type ConfiguredLockOptions<S extends readonly unknown[]> = Configurable.Options<
    Omit<DistributedLockOptions, 'around' | 'signal' | 'onBusy'>
  > &
    Pick<DistributedLockOptions<S>, 'signal'>;
}

/** Decorates methods whose parameters start with `A` for the key, and with `S` for `signal`. */
export interface LockDecorator<A extends readonly unknown[] = readonly [], S extends readonly unknown[] = readonly []> {
  // Doesn't match any method. With a second signature, TypeScript compares without type parameters, so
  // `applyDecorators()`, which needs decorators for methods of any type, accepts this one. If more than three
  // signatures do not match, the compiler reports only the last.
  /* eslint-disable @typescript-eslint/unified-signatures -- the number of signatures matters */
  (target: never, method: never, descriptor: never): void;
  (target: never, method: never, descriptor: never): void;
  // Only this signature has the same number of parameters as a property decorator, so the compiler reports misuse
  // there.
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

/** A {@link LockDecorator} for methods whose result may be `undefined`, because a skipped call resolves to it. */
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
  // If more than three signatures do not match, the compiler reports only the last.
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
