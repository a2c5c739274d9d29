import 'reflect-metadata';
import { type CronTimeClass, scheduleOf } from '../../recipes/jobs/ticks.js';
import { cronMarkOf } from '../methods/method-ticks.js';

/** How many ticks are looked at: all minutes of an hour. Each takes `cron` up to a millisecond. */
const TICKS = 61;
/** The ticks of an expression are a second apart at least. */
const SECOND = 1_000;

/**
 * The shortest time between two runs for which `@nestjs/schedule` calls a method, in ms, among those of the near future: read from the marks that
 * `@Cron` and `@Interval` leave. `undefined` for a method that is not scheduled, or only once, or while the class is not known.
 */
export function shortestGap(method: object, CronTime: CronTimeClass | undefined): number | undefined {
  const interval = Reflect.getMetadata('SCHEDULE_INTERVAL_OPTIONS', method) as { timeout?: unknown } | undefined;
  if (typeof interval?.timeout === 'number') return interval.timeout;
  const cron = cronMarkOf(method);
  if (!cron || cron.disabled === true || !CronTime) return undefined;
  // No clock is changed in this zone: an hour that is left out in spring is no reason to warn.
  const schedule = scheduleOf(CronTime, cron.cronTime, { timeZone: 'UTC' });
  let shortest: number | undefined;
  let tick = schedule.next(Date.now());
  for (let count = 1; tick !== undefined && count < TICKS && shortest !== SECOND; count += 1) {
    const next = schedule.next(tick);
    if (next !== undefined) shortest = Math.min(shortest ?? Infinity, next - tick);
    tick = next;
  }
  return shortest;
}
