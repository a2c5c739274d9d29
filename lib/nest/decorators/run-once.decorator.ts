import { readRunOptions, type RunOnceOptions, type RunTicksOptions } from '../../recipes/run-once.js';
import { declaration } from '../methods/declared-method.js';
import type { Configurable } from '../methods/decorator-options.js';
import { type MethodOptions, TICKS } from '../methods/distributed-lock-options.js';
import { wrappedMethod } from '../methods/results/wrapped-method.js';
import type { SkippableLockDecorator } from './decorator-types.js';

const EXAMPLE = "@RunOnce('nightly-report', { maxHold: '1h' })";

/**
 * Runs the method once in the whole fleet: the first process to call it runs it, and the others skip it.
 *
 * A method with `@Cron` has ticks, the times at which it is due. Only one process starts each tick, no matter how far
 * apart the clocks are or how short the run is. A call outside the schedule belongs to the latest tick. The last tick
 * is recorded on the provider, which must support records: Redis, SQL, ZooKeeper, failover, or memory. Use one fixed
 * key for all calls, and use it for this method only.
 *
 * With `minHold`, the key stays locked for that time instead, and nothing is recorded: use it for `@Interval` and
 * `@Timeout`, or if the provider doesn't support records. This is equivalent to
 * `@DistributedLock(key, { wait: 0, onBusy: 'skip', minHold, maxHold })`.
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
  // This function doesn't match the declared type's property signature, which has no descriptor.
  return declaration({
    decorator: '@RunOnce',
    example: EXAMPLE,
    key,
    options,
    toLock,
    wrap: wrappedMethod,
  }) as SkippableLockDecorator;
}

function toLock(given: object): MethodOptions {
  const { lock, missingRuns } = readRunOptions({ ...given });
  return { ...lock, onBusy: 'skip', ...(missingRuns && { [TICKS]: missingRuns }) };
}
