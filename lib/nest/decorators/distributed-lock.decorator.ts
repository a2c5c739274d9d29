import type { KeyFunction } from '../../key/key-function.js';
import { declaration } from '../methods/declared-method.js';
import type { Configurable } from '../methods/decorator-options.js';
import type { DistributedLockOptions } from '../methods/distributed-lock-options.js';
import { wrappedMethod } from '../methods/results/wrapped-method.js';
import type { KeySource } from '../methods/method-key.js';
import type { LockDecorator, SkippableLockDecorator } from './decorator-types.js';

const EXAMPLE = "@DistributedLock('order:#{order.id}', { wait: '2s' })";

/**
 * Runs the method under a lock, on every instance of the class that Nest creates.
 *
 * An async method holds the lock until it settles, an async generator from its first value to its end, and a method
 * that returns an Observable for the duration of each subscription. You can combine it with other decorators in any
 * order. If two of them wrap the method, the upper one is the outer one: put `@DistributedLock` above `@Transactional`,
 * so the commit comes before the release.
 *
 * If a consumer abandons a generator that is working on its next value, `currentLock().signal` aborts. JavaScript
 * cannot interrupt a generator that ignores the signal, so it holds the lock until its next value.
 *
 * If you pass the lock on to several branches of one `Promise.all`, they count as one owner, and the lock does not
 * exclude them from one another.
 *
 * @example
 * ```ts
 * @DistributedLock('order:#{order.id}', { wait: '2s' })
 * async pay(order: Order): Promise<void> {
 *   await this.payments.charge(order, { signal: currentLock().signal });
 * }
 * ```
 * @param key a template such as `order:#{order.id}`, several of them, or a function of the method's arguments. Several
 * keys are acquired in sorted order, all or nothing. `#{class}` is the class that declares the method, even in
 * subclasses. Bundlers rename classes, so write out any name that must survive a build. A template or option that
 * cannot work makes the application fail at startup.
 * @param options the options, or a function of the module's `config` that is called once, at startup:
 * `(config: ConfigService) => ({ lease: config.get('LOCK_LEASE') })`.
 * @throws LockConfigError when decorating a method that cannot be locked.
 */
// There is only one signature: with several overloads, TypeScript reports a wrong option against the last one, which
// takes a different kind of key.
export function DistributedLock<
  A extends readonly unknown[] = readonly [],
  B extends DistributedLockOptions['onBusy'] = undefined,
  S extends readonly unknown[] = readonly [],
>(
  key: string | readonly string[] | KeyFunction<A>,
  options?:
    | (DistributedLockOptions<S> & LockDecorator.BusyOption<B>)
    | ((config: never) => LockDecorator.ConfiguredLockOptions<S> & LockDecorator.BusyOption<B>),
): 'skip' extends B ? SkippableLockDecorator<A, S> : LockDecorator<A, S>;
export function DistributedLock(key: KeySource, options: Configurable<DistributedLockOptions> = {}): LockDecorator {
  // This function doesn't match the declared type's property signature, which has no descriptor.
  return declaration({
    decorator: '@DistributedLock',
    example: EXAMPLE,
    key,
    options,
    wrap: wrappedMethod,
  }) as LockDecorator;
}
