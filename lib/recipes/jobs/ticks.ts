import type { Schedule } from '../../core/schedule.js';

/**
 * The part of `CronTime` of the package `cron` that computes ticks. The class is given from outside, as `job.cronTime.constructor` of any job of
 * `SchedulerRegistry`: bundlers and pnpm cannot find that package from here, and no other parser fires as `@nestjs/schedule` fires.
 */
export type CronTimeClass = new (
  expression: string,
  zone: string,
) => {
  /** A time after `start`, as the `DateTime` of luxon. @throws if there is none within 8 years */
  getNextDateFrom(start: Date, zone: string): { toMillis(): number; readonly zone: Zone };
};

interface Zone {
  /** By how many minutes it is ahead of UTC at this time. */
  offset(time: number): number;
}

/** As the options of `@Cron`. Default: the zone of the process. */
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
 * The ticks of what `@Cron` is given: an expression, or a date (also a `DateTime` of luxon), which is the only tick.
 *
 * @throws what `CronTime` throws for an expression or a zone that it cannot read
 */
export function scheduleOf(CronTime: CronTimeClass, due: string | { valueOf(): number }, zone: ScheduleZone): Schedule {
  return typeof due === 'string' ? new CronSchedule(CronTime, inOneLine(due), zoneOf(zone)) : onlyAt(due.valueOf());
}

/** The same expression with one space between its fields: its text is recorded for all instances, and shown. */
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

/** The name of the zone, as `cron` would make it. */
function zoneOf({ timeZone, utcOffset }: ScheduleZone): string {
  if (timeZone) return timeZone;
  if (utcOffset === null || utcOffset === undefined) return Intl.DateTimeFormat().resolvedOptions().timeZone;
  const minutes = Math.abs(utcOffset);
  const twoDigits = (value: number) => String(value).padStart(2, '0');
  return `UTC${utcOffset < 0 ? '-' : '+'}${twoDigits(Math.floor(minutes / 60))}:${twoDigits(minutes % 60)}`;
}

/**
 * The ticks of a cron expression: from a noon, each is the next one after the tick before, as `cron` computes it. In an hour that is repeated at the
 * end of summer time, the answer of `cron` depends on where it begins, so each tick is computed from before that hour.
 */
class CronSchedule implements Schedule {
  readonly text: string;
  readonly #cron: InstanceType<CronTimeClass>;
  readonly #zone: Zone;
  /** The tick that was found last: the next one is near it. */
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
    const start = this.#known <= time ? this.#known : this.#someBefore(time);
    if (start === undefined) return undefined;
    return (this.#known = this.#latestFrom(start, time));
  }

  next(tick: number): number | undefined {
    let found: ReturnType<InstanceType<CronTimeClass>['getNextDateFrom']>;
    try {
      found = this.#cron.getNextDateFrom(new Date(tick), this.zoneName);
    } catch {
      // Never within 8 years.
      return undefined;
    }
    const at = found.toMillis();
    if (at > tick) return at;
    // In summer luxon takes a local time of a repeated hour for that of the first time, which is over.
    const again = at + (this.#zone.offset(at) - this.#zone.offset(tick)) * MINUTE;
    // A tick that is not later would make a search for the last one endless.
    return again > tick ? again : undefined;
  }

  #latestFrom(start: number, time: number): number {
    let tick = start;
    for (;;) {
      const repeated = this.#nextRepeat(tick, time);
      tick = this.#lastBetween(tick, repeated === undefined ? time : repeated - 1);
      if (repeated === undefined) return tick;
      const after = this.next(tick);
      if (after === undefined || after > time) return tick;
      tick = after;
    }
  }

  /** A tick from which the one at `time` can be found: the first one after a noon at least a day before. No clock is set back at noon. */
  #someBefore(time: number): number | undefined {
    for (let days = 1; ; days = Math.min(days * 2, MOST_DAYS)) {
      const dayBefore = time - days * DAY;
      const offset = this.#zone.offset(dayBefore) * MINUTE;
      // The last noon before it.
      const noon = Math.floor((dayBefore + offset) / DAY - 0.5) * DAY + DAY / 2 - offset;
      const tick = this.next(noon);
      if (tick !== undefined && tick <= time) return tick;
      if (days === MOST_DAYS) return undefined;
    }
  }

  /** The last tick until `end`, from `tick` on. No clock may be set back in between. */
  #lastBetween(tick: number, end: number): number {
    const second = this.next(tick);
    if (second === undefined || second > end) return tick;
    let last = second;
    // No tick is between it and the end.
    let empty = end;
    // As a rule it is one period before the end. Each question takes `cron` up to a millisecond.
    for (let step = second - tick; end - step > last; step *= 8) {
      const found = this.next(end - step);
      if (found !== undefined && found <= end) {
        last = found;
        break;
      }
      empty = end - step;
    }
    const after = this.next(last);
    if (after === undefined || after > end) return last;
    // Ticks are a second apart at least.
    while (empty - last >= SECOND) {
      const middle = Math.floor((last + empty) / 2);
      const found = this.next(middle);
      if (found !== undefined && found <= end) last = found;
      else empty = middle;
    }
    return last;
  }

  /** When the clock of the zone is set back for the first time after `from`, until `end`. */
  #nextRepeat(from: number, end: number): number | undefined {
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
