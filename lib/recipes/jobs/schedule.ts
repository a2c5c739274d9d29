/**
 * A job's ticks: the times at which it is due, in ms since 1970. They don't depend on a clock, so all instances compute
 * the same ticks.
 */
export interface Schedule {
  /**
   * The expression and its zone, such as `0 3 * * * (Europe/Berlin)`. Schedules with the same text have the same ticks.
   */
  readonly text: string;
  /** The latest tick at or before this time, or `undefined` if there is none. */
  latest(time: number): number | undefined;
  /** The first tick after the given tick (or a time before all ticks); `undefined` if there is none. */
  next(tick: number): number | undefined;
}

/**
 * The part of the `cron` package's `CronTime` that computes ticks. The class is passed in, as
 * `job.cronTime.constructor` of any `SchedulerRegistry` job, because bundlers and pnpm cannot find that package from
 * here, and no other parser yields the same ticks as `@nestjs/schedule`.
 */
export type CronTimeClass = new (
  expression: string,
  zone: string,
) => {
  /** The first due time after `start`, as a luxon `DateTime`. @throws if there is none within 8 years */
  getNextDateFrom(start: Date, zone: string): { toMillis(): number; readonly zone: Zone };
};

interface Zone {
  /** How many minutes the zone is ahead of UTC at this time. */
  offset(time: number): number;
}

/** The `@Cron` options. Default: the process's zone. */
export interface ScheduleZone {
  readonly timeZone?: string | null | undefined;
  /** In minutes. */
  readonly utcOffset?: number | null | undefined;
}

const SECOND = 1_000;
const MINUTE = 60_000;
const DAY = 86_400_000;
// `0 0 29 2 *` is due every 4 years, and `cron` looks 8 years ahead.
const MOST_DAYS = 9 * 366;

/**
 * The ticks of a `@Cron` argument: either an expression, or a date (or a luxon `DateTime`), which yields a single tick.
 *
 * @throws what `CronTime` throws for an expression or a zone that it cannot parse
 */
export function scheduleOf(CronTime: CronTimeClass, due: string | { valueOf(): number }, zone: ScheduleZone): Schedule {
  return typeof due === 'string' ? new CronSchedule(CronTime, inOneLine(due), zoneOf(zone)) : onlyAt(due.valueOf());
}

/** The same expression with one space between fields, because its text is displayed and recorded for all instances. */
function inOneLine(expression: string): string {
  return expression.trim().replaceAll(/\s+/g, ' ');
}

function onlyAt(date: number): Schedule {
  return {
    text: new Date(date).toISOString(),
    latest: (time) => (date <= time ? date : undefined),
    next: (tick) => (date > tick ? date : undefined),
  };
}

/** The zone's name, as `cron` formats it. */
function zoneOf({ timeZone, utcOffset }: ScheduleZone): string {
  if (timeZone) return timeZone;
  if (utcOffset === null || utcOffset === undefined) return Intl.DateTimeFormat().resolvedOptions().timeZone;
  const minutes = Math.abs(utcOffset);
  const twoDigits = (value: number) => String(value).padStart(2, '0');
  return `UTC${utcOffset < 0 ? '-' : '+'}${twoDigits(Math.floor(minutes / 60))}:${twoDigits(minutes % 60)}`;
}

/**
 * A cron expression's ticks, each computed by `cron` from the previous tick, starting at noon on some day. In an hour
 * that is repeated when daylight saving time ends, `cron`'s result depends on where it starts, so a search never jumps
 * into that hour.
 */
class CronSchedule implements Schedule {
  readonly text: string;
  readonly #cron: InstanceType<CronTimeClass>;
  readonly #zone: Zone;
  /** The last result of {@link latest}, which is close to the next one. */
  #known = Infinity;

  constructor(
    CronTime: CronTimeClass,
    expression: string,
    private readonly zoneName: string,
  ) {
    this.text = `${expression} (${zoneName})`;
    this.#cron = new CronTime(expression, zoneName);
    this.#zone = new CronTime('* * * * * *', zoneName).getNextDateFrom(new Date(), zoneName).zone;
  }

  latest(time: number): number | undefined {
    let tick = this.#known <= time ? this.#known : this.#tickBefore(time);
    for (let from = tick; from !== undefined && from <= time; from = this.next(tick)) {
      const setBackAt = this.#nextSetBack(from, time);
      tick = this.#known = this.#lastBetween(from, setBackAt === undefined ? time : setBackAt - 1);
      if (setBackAt === undefined) break;
    }
    return tick;
  }

  next(tick: number): number | undefined {
    let found: ReturnType<InstanceType<CronTimeClass>['getNextDateFrom']>;
    try {
      found = this.#cron.getNextDateFrom(new Date(tick), this.zoneName);
    } catch {
      // There is no tick within 8 years.
      return undefined;
    }
    const at = found.toMillis();
    if (at > tick) return at;
    // In summer, luxon resolves a local time in a repeated hour to its first occurrence, which has already passed.
    const again = at + (this.#zone.offset(at) - this.#zone.offset(tick)) * MINUTE;
    // A tick that isn't later would make the search loop forever.
    return again > tick ? again : undefined;
  }

  /**
   * A tick from which the one at `time` can be found: the first tick after a noon at least a day earlier. Clocks are
   * never set back at noon.
   */
  #tickBefore(time: number): number | undefined {
    for (let days = 1; ; days = Math.min(days * 2, MOST_DAYS)) {
      const dayBefore = time - days * DAY;
      const offset = this.#zone.offset(dayBefore) * MINUTE;
      const lastNoon = Math.floor((dayBefore + offset) / DAY - 0.5) * DAY + DAY / 2 - offset;
      const tick = this.next(lastNoon);
      if (tick !== undefined && tick <= time) return tick;
      if (days === MOST_DAYS) return undefined;
    }
  }

  /** The last tick up to `end`, starting at `tick`. The clock must not be set back in between. */
  #lastBetween(tick: number, end: number): number {
    let last = this.next(tick);
    if (last === undefined || last > end) return tick;
    let noneAfter = end;
    // The last tick is usually near the end. Each call to `cron` takes up to a millisecond, and ticks are at least a
    // second apart.
    for (let step = SECOND; noneAfter - last >= SECOND; step *= 64) {
      const probe = Math.max(end - step, Math.floor((last + noneAfter) / 2));
      const found = this.next(probe);
      if (found !== undefined && found <= end) last = found;
      else noneAfter = probe;
    }
    return last;
  }

  /** The next time the zone's clock is set back, after `from` and up to `end`. */
  #nextSetBack(from: number, end: number): number | undefined {
    for (let start = from; start < end; start += DAY) {
      let before = start;
      let after = Math.min(start + DAY, end);
      const offset = this.#zone.offset(before);
      if (offset <= this.#zone.offset(after)) continue;
      while (after - before > 1) {
        const middle = Math.floor((before + after) / 2);
        if (this.#zone.offset(middle) === offset) before = middle;
        else after = middle;
      }
      return after;
    }
    return undefined;
  }
}
