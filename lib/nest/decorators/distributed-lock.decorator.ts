import type { KeyFunction } from '../../key/key-function.js';
import { declaration } from '../methods/declared-method.js';
import type { Configurable } from '../methods/decorator-options.js';
import type { DistributedLockOptions } from '../methods/distributed-lock-options.js';
import { lockedCall } from '../methods/locked-call.js';
import type { KeySource } from '../methods/method-key.js';
import type { LockDecorator, SkippableLockDecorator } from './decorator-types.js';

const EXAMPLE = "@DistributedLock('order:#{order.id}', { wait: '2s' })";

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
>(
  key: string | readonly string[] | KeyFunction<A>,
  options?:
    | (DistributedLockOptions<S> & LockDecorator.BusyOption<B>)
    | ((config: never) => LockDecorator.ConfiguredLockOptions<S> & LockDecorator.BusyOption<B>),
): 'skip' extends B ? SkippableLockDecorator<A, S> : LockDecorator<A, S>;
export function DistributedLock(key: KeySource, options: Configurable<DistributedLockOptions> = {}): LockDecorator {
  // Its signature for properties has no descriptor, and fits none.
  return declaration({
    decorator: '@DistributedLock',
    example: EXAMPLE,
    key,
    options,
    wrap: lockedCall,
  }) as LockDecorator;
}
