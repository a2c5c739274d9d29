import { readRunOptions, type RunOnceOptions, type RunTicksOptions } from '../../recipes/run-once.js';
import { declaration } from '../methods/declared-method.js';
import type { Configurable } from '../methods/decorator-options.js';
import { type MethodOptions, TICKS } from '../methods/distributed-lock-options.js';
import { lockedCall } from '../methods/locked-call.js';
import type { SkippableLockDecorator } from './decorator-types.js';

const EXAMPLE = "@RunOnce('nightly-report', { maxHold: '1h' })";

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
  // Its signature for properties has no descriptor, and fits none.
  return declaration({
    decorator: '@RunOnce',
    example: EXAMPLE,
    key,
    options,
    toLock,
    wrap: lockedCall,
  }) as SkippableLockDecorator;
}

function toLock(given: object): MethodOptions {
  const { lock, looks } = readRunOptions({ ...given });
  return { ...lock, onBusy: 'skip', ...(looks && { [TICKS]: looks }) };
}
