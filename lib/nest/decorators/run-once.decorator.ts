import { LockConfigError } from '../../api/errors.js';
import { assertOptions, assertParentheses, decoratedMethod } from '../../decoration/decorated-method.js';
import { readRunOptions, type RunOnceOptions, type RunTicksOptions } from '../../recipes/run-once.js';
import type { Configurable } from '../methods/decorator-options.js';
import { type MethodOptions, TICKS } from '../methods/distributed-lock-options.js';
import type { SkippableLockDecorator } from './decorator-types.js';
import { DistributedLock } from './distributed-lock.decorator.js';

const TICKS_EXAMPLE = "@RunOnce('nightly-report', { maxHold: '1h' })";

/**
 * Runs the method once in the whole fleet: the process that comes first runs it, the others skip it.
 *
 * A method that `@Cron` schedules has ticks, the times at which it is due, and each is begun by one process, however far apart their clocks are and
 * however short the run is. A call that nothing has scheduled belongs to the latest tick. What was begun is recorded at the provider, which must keep records:
 * Redis, SQL, ZooKeeper, failover or memory. The key must be the same for all calls, and belong to this method alone.
 *
 * With `minHold` the key stays locked for that time instead, and nothing is recorded: for `@Interval` and `@Timeout`, and for the other providers. It is then
 * the same as `@DistributedLock(key, { wait: 0, onBusy: 'skip', minHold, maxHold })`.
 *
 * @example
 * ```ts
 * @Cron('0 3 * * *')
 * @RunOnce('nightly-report')
 * async report() {}
 * ```
 */
export function RunOnce(
  key: string,
  options: Configurable<
    (RunOnceOptions & { catchUp?: undefined; afterCrash?: undefined }) | (RunTicksOptions & { minHold?: undefined })
  > = {},
): SkippableLockDecorator {
  assertParentheses('@RunOnce', key, options, TICKS_EXAMPLE);
  const decorate = (target: object, name: string | symbol, descriptor: PropertyDescriptor): void => {
    const { name: place } = decoratedMethod('@RunOnce', target, name, descriptor);
    assertOptions('@RunOnce', place, options, TICKS_EXAMPLE);
    // Options from the configuration are checked at boot, with those of the lock.
    const ofLock =
      typeof options === 'function'
        ? (config: never) => optionsOf(options(config))
        : at(place, () => optionsOf(options));
    const lock: MethodDecorator = DistributedLock(key, ofLock);
    lock(target, name, descriptor);
  };
  // Its signature for properties has no descriptor, and fits none.
  return decorate as SkippableLockDecorator;
}

/** Names the method in the error for its options. */
function at<T>(place: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof LockConfigError)) throw error;
    throw new LockConfigError(`${place}: ${error.message}`, { cause: error.cause });
  }
}

function optionsOf(given: object): MethodOptions & { readonly onBusy: 'skip' } {
  const { lock, looks } = readRunOptions({ ...given });
  return { ...lock, onBusy: 'skip', ...(looks && { [TICKS]: looks }) };
}
