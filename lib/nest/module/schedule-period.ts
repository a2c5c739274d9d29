import 'reflect-metadata';

const PRESETS: Readonly<Record<string, string>> = {
  '@yearly': '0 0 0 1 1 *',
  '@monthly': '0 0 0 1 * *',
  '@weekly': '0 0 0 * * 0',
  '@daily': '0 0 0 * * *',
  '@hourly': '0 0 * * * *',
  '@minutely': '0 * * * * *',
  '@secondly': '* * * * * *',
  '@weekdays': '0 0 0 * * 1-5',
  '@weekends': '0 0 0 * * 0,6',
};
const MONTHS = ['jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'];
const WEEKDAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
const DAY = 86_400;
// After 28 years each date falls on the same day of the week again.
const ALL_DAYS = 28 * 366;

/**
 * The shortest time between two runs for which `@nestjs/schedule` calls a method, in ms: read from the marks that `@Cron` and `@Interval` leave,
 * without that package. `undefined` for a method that is not scheduled, or only once, or by an expression that cannot be read.
 */
export function periodOf(method: object): number | undefined {
  const interval = Reflect.getMetadata('SCHEDULE_INTERVAL_OPTIONS', method) as { timeout?: unknown } | undefined;
  if (typeof interval?.timeout === 'number') return interval.timeout;
  const cron = Reflect.getMetadata('SCHEDULE_CRON_OPTIONS', method) as
    { cronTime?: unknown; disabled?: unknown } | undefined;
  return typeof cron?.cronTime === 'string' && cron.disabled !== true ? cronPeriod(cron.cronTime) : undefined;
}

/** The shortest time between two ticks of an expression as the package `cron` reads it, in ms. A change of the clock in spring is left out. */
export function cronPeriod(expression: string): number | undefined {
  const text = expression.trim().toLowerCase();
  const fields = (PRESETS[text] ?? text).split(/\s+/);
  // The seconds may be left out.
  const [second, minute, hour, date, month, weekday, tooMany] = fields.length === 5 ? ['0', ...fields] : fields;
  const seconds = valuesOf(second, 0, 59);
  const minutes = valuesOf(minute, 0, 59);
  const hours = valuesOf(hour, 0, 23);
  const dates = valuesOf(date, 1, 31);
  const months = valuesOf(month, 1, 12, MONTHS);
  const weekdays = valuesOf(weekday, 0, 7, WEEKDAYS)?.map((day) => day % 7);
  if (!seconds || !minutes || !hours || !dates || !months || !weekdays || tooMany !== undefined) return undefined;

  const times = hours.flatMap((h) => minutes.flatMap((m) => seconds.map((s) => (h * 60 + m) * 60 + s)));
  const [first = 0] = times;
  const nextDay = shortestGapOfDays(dates, months, weekdays) * DAY + first - (times.at(-1) ?? 0);
  return Math.min(shortestGap(times), nextDay) * 1000;
}

/** The shortest time between two days that match, in days. */
function shortestGapOfDays(dates: readonly number[], months: readonly number[], weekdays: readonly number[]): number {
  const isAnyDate = dates.length === 31;
  const isAnyWeekday = new Set(weekdays).size === 7;
  let shortest = Infinity;
  let before = -Infinity;
  for (let day = 0; day < ALL_DAYS && shortest > 1; day++) {
    const time = new Date(Date.UTC(2000, 0, 1 + day));
    const isDate = dates.includes(time.getUTCDate());
    const isWeekday = weekdays.includes(time.getUTCDay());
    // Of two that are restricted, one is enough.
    const isDay = isAnyDate || isAnyWeekday ? isDate && isWeekday : isDate || isWeekday;
    if (!isDay || !months.includes(time.getUTCMonth() + 1)) continue;
    shortest = Math.min(shortest, day - before);
    before = day;
  }
  return shortest;
}

/** Of sorted numbers. */
function shortestGap(numbers: readonly number[]): number {
  let shortest = Infinity;
  for (let at = 1; at < numbers.length; at++) {
    shortest = Math.min(shortest, (numbers[at] ?? 0) - (numbers[at - 1] ?? 0));
  }
  return shortest;
}

/** The values of one field, sorted; `undefined` where it cannot be read. */
function valuesOf(
  field: string | undefined,
  low: number,
  high: number,
  names: readonly string[] = [],
): number[] | undefined {
  const values = new Set<number>();
  for (const part of field?.split(',') ?? ['']) {
    const digits = part
      .replace('*', `${low}-${high}`)
      .replace(/[a-z]{3}/g, (name) => (names.includes(name) ? `${names.indexOf(name) + low}` : name));
    const [, from, to, step] = /^(\d+)(?:-(\d+))?(?:\/(\d+))?$/.exec(digits) ?? [];
    if (from === undefined) return undefined;
    const last = Number(to ?? (step === undefined ? from : high));
    if (Number(from) < low || last > high || Number(from) > last || step === '0') return undefined;
    for (let value = Number(from); value <= last; value += Number(step ?? 1)) values.add(value);
  }
  return [...values].sort((a, b) => a - b);
}
