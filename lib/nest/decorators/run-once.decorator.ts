import { lockOfRun, type RunOnceOptions } from '../../recipes/run-once.js';
import type { Configurable } from '../methods/decorator-options.js';
import type { SkippableLockDecorator } from './decorator-types.js';
import { DistributedLock } from './distributed-lock.decorator.js';

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
  // Options from the configuration are checked with those of the lock.
  return DistributedLock(
    key,
    typeof options === 'function' ? (config: never) => lockOf(options(config) as RunOnceOptions) : lockOf(options),
  );
}
