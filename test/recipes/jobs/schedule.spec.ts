import { CronTime } from 'cron';
import fc from 'fast-check';
import { createRequire } from 'node:module';
import type * as Luxon from 'luxon';
import { scheduleOf } from '../../../lib/recipes/jobs/schedule.js';
import { exploration } from '../../exploration.js';

// `cron`'s own copy.
const { DateTime, Settings } = createRequire(import.meta.url)('luxon') as typeof Luxon;

const SECOND = 1_000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

const berlin = (expression: string) => scheduleOf(CronTime, expression, { timeZone: 'Europe/Berlin' });
const at = (text: string) => Date.parse(text);
const shown = (time: number | undefined) => time && new Date(time).toISOString().replace(':00.000Z', 'Z');

/** luxon resolves an ambiguous local time to its first or second occurrence depending on the current season. */
function askedOn(date: string) {
  Settings.now = () => at(date);
}

const { now: present } = Settings;
afterEach(() => {
  Settings.now = present;
});

describe.each(['2026-01-10', '2026-07-01'])('computed on %s', (date) => {
  beforeEach(() => {
    askedOn(date);
  });

  it.each<[string, string, string | undefined, string | undefined]>([
    // An exact tick.
    ['0 3 * * *', '2026-06-01T01:00:00Z', '2026-06-01T01:00Z', '2026-06-02T01:00Z'],
    ['0 3 * * *', '2026-06-01T00:59:59.999Z', '2026-05-31T01:00Z', '2026-06-01T01:00Z'],
    ['*/5 * * * *', '2026-06-01T00:04:59Z', '2026-06-01T00:00Z', '2026-06-01T00:05Z'],
    ['* * * * * *', '2026-06-01T00:00:00.400Z', '2026-06-01T00:00Z', '2026-06-01T00:00:01.000Z'],
    // Saturday, then the last minute of Friday.
    ['* * 9-17 * * 1-5', '2026-06-06T22:00:00Z', '2026-06-05T15:59:59.000Z', '2026-06-08T07:00Z'],
    ['0 0 1 1 *', '2026-12-30T00:00:00Z', '2025-12-31T23:00Z', '2026-12-31T23:00Z'],
    ['0 0 29 2 *', '2027-12-30T00:00:00Z', '2024-02-28T23:00Z', '2028-02-28T23:00Z'],
    ['0 0 30 2 *', '2027-12-30T00:00:00Z', undefined, undefined],
    // The DST gap in March, from 02:00 to 03:00.
    ['30 2 * * *', '2026-03-29T03:00:00Z', '2026-03-29T01:00Z', '2026-03-30T00:30Z'],
    ['0 3 * * *', '2026-03-29T03:00:00Z', '2026-03-29T01:00Z', '2026-03-30T01:00Z'],
    // The hour from 02:00 to 03:00 is repeated in October. A daily job in that hour has one tick.
    ['30 2 * * *', '2026-10-25T00:59:00Z', '2026-10-25T00:30Z', '2026-10-26T01:30Z'],
    ['30 2 * * *', '2026-10-25T01:45:00Z', '2026-10-25T00:30Z', '2026-10-26T01:30Z'],
    ['*/10 2 * * *', '2026-10-25T01:45:00Z', '2026-10-25T00:50Z', '2026-10-26T01:00Z'],
    ['*/10 * * * *', '2026-10-25T01:45:00Z', '2026-10-25T01:40Z', '2026-10-25T01:50Z'],
    ['0 * * * *', '2026-10-25T01:45:00Z', '2026-10-25T01:00Z', '2026-10-25T02:00Z'],
    // `cron` fires twice, and the second firing is its own tick.
    ['0 3 * * *', '2026-10-25T01:45:00Z', '2026-10-25T01:00Z', '2026-10-25T02:00Z'],
    ['0 3 * * *', '2026-10-25T02:00:00Z', '2026-10-25T02:00Z', '2026-10-26T02:00Z'],
    ['30 2 25 10 *', '2026-11-09T00:00:00Z', '2026-10-25T00:30Z', '2027-10-25T00:30Z'],
  ])('%s at %s was due at %s, then at %s', (expression, time, latest, next) => {
    const schedule = berlin(expression);
    const tick = schedule.latest(at(time));
    expect(shown(tick)).toBe(latest);
    expect(shown(tick === undefined ? schedule.next(at(time)) : schedule.next(tick))).toBe(next);
  });

  it('maps each `cron` firing to its own or an earlier tick, and never goes back', () => {
    const zones = [
      'Europe/Berlin',
      'America/New_York',
      'Australia/Sydney',
      'Australia/Lord_Howe',
      'Africa/Casablanca',
      'Antarctica/Troll',
      'Asia/Kolkata',
      'UTC',
    ];
    const field = (values: readonly string[]) => fc.constantFrom('*', ...values);
    const expressions = fc.record({
      second: fc.constantFrom('0', '0', '0', '30', '*/20', '7,8,59'),
      minute: field(['0', '30', '*/15', '59', '10-12', '1,31']),
      hour: field(['0', '1', '2', '3', '1-3', '*/2', '23', '2,14']),
      day: field(['1', '25', '29', '*/10', '8-14']),
      month: field(['3', '10', '4,11', '*/3']),
      weekday: field(['0', '1-5', '6']),
    });
    const times = fc.constantFrom(
      ...[
        '2026-03-29',
        '2026-10-25',
        '2026-11-01',
        '2026-03-08',
        '2026-04-05',
        '2026-10-04',
        '2026-02-15',
        '2026-03-22',
      ].map(at),
    );
    fc.assert(
      fc.property(
        expressions,
        fc.constantFrom(...zones),
        fc.oneof(times, fc.integer({ min: at('2026-01-01'), max: at('2027-01-01') })),
        fc.integer({ min: -DAY, max: DAY }),
        ({ second, minute, hour, day, month, weekday }, timeZone, around, offset) => {
          const expression = [second, minute, hour, day, month, weekday].join(' ');
          const cron = new CronTime(expression, timeZone);
          const schedule = scheduleOf(CronTime, expression, { timeZone });
          let now = around + offset;
          let last = schedule.latest(now) ?? -Infinity;
          for (let firing = 0; firing < 5; firing += 1) {
            let fired: number;
            try {
              fired = cron.getNextDateFrom(new Date(now), timeZone).toMillis();
            } catch {
              return;
            }
            // `cron` fires immediately for a time in the past, once per millisecond. Skip ahead to keep the test fast.
            if (fired <= now) fired = now + 60 * SECOND;
            const tick = schedule.latest(fired);
            expect(tick).toBeLessThanOrEqual(fired);
            expect(tick).toBeGreaterThanOrEqual(last);
            // A tick maps to itself, and nothing is due between a tick and the next one.
            expect(schedule.latest(tick!)).toBe(tick);
            const next = schedule.next(tick!);
            expect(next === undefined || next > fired).toBe(true);
            last = tick!;
            now = fired;
          }
        },
      ),
      { numRuns: exploration(25, 3_000) },
    );
  });
});

it('returns the same ticks in summer and in winter', () => {
  const expressions = ['*/15 * * * *', '30 2 * * *', '0,30 1-3 * * *', '7 * * * * *'];
  const ticksOf = (date: string, expression: string) => {
    askedOn(date);
    const schedule = berlin(expression);
    return Array.from({ length: 45 }, (_, step) => schedule.latest(at('2026-10-24T22:30:00Z') + step * 5 * 60_000));
  };
  for (const expression of expressions) {
    expect(ticksOf('2026-07-01', expression)).toEqual(ticksOf('2026-01-10', expression));
  }
});

it.each(['* * 9-17 * * 1-5', '* * * * * *', '* * * 1 1 *', '59 59 23 31 12 *', '0 0 29 2 *', '* * 2 * * 0'])(
  'calls `cron` only a few times for %s, however dense or old its ticks are',
  (expression) => {
    let calls = 0;
    class Counting extends CronTime {
      override getNextDateFrom(...args: Parameters<CronTime['getNextDateFrom']>) {
        calls += 1;
        return super.getNextDateFrom(...args);
      }
    }
    const schedule = scheduleOf(Counting, expression, { timeZone: 'Europe/Berlin' });
    // A Sunday night after summer time ends.
    const tick = schedule.latest(at('2027-10-31T21:59:30Z'))!;
    expect(calls).toBeLessThan(50);
    calls = 0;
    expect(schedule.latest(schedule.next(tick)!)).toBeGreaterThan(tick);
    expect(calls).toBeLessThan(6);
  },
);

it('accepts the same time zones as `cron`', () => {
  const time = at('2026-06-01T12:00:00Z');
  expect(berlin(' 0\t3  * * * ').text).toBe('0 3 * * * (Europe/Berlin)');
  const in_ = (zone: Parameters<typeof scheduleOf>[2]) => scheduleOf(CronTime, ' 0 3 * * * ', zone);
  expect(in_({ utcOffset: 330 })).toMatchObject({ text: '0 3 * * * (UTC+05:30)' });
  expect(shown(in_({ utcOffset: 330 }).latest(time))).toBe('2026-05-31T21:30Z');
  expect(in_({ utcOffset: -90 }).text).toBe('0 3 * * * (UTC-01:30)');
  expect(shown(in_({ utcOffset: -90 }).latest(time))).toBe('2026-06-01T04:30Z');
  for (const utcOffset of [330, -90, 0, -480]) {
    const fires = new CronTime('0 3 * * *', null, utcOffset).sendAt().toMillis();
    expect(in_({ utcOffset }).next(in_({ utcOffset }).latest(Date.now())!)).toBe(fires);
  }
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  expect(in_({}).text).toBe(`0 3 * * * (${own})`);
  expect(in_({ timeZone: null, utcOffset: null }).text).toBe(`0 3 * * * (${own})`);
  expect(() => in_({ timeZone: 'Europe/Berln' })).toThrow('Invalid timezone');
});

it.each([new Date('2026-06-01T12:00:00Z'), DateTime.fromISO('2026-06-01T12:00:00Z')])(
  'treats a date as its only tick',
  (date) => {
    const schedule = scheduleOf(CronTime, date, { timeZone: 'Europe/Berlin' });
    const time = at('2026-06-01T12:00:00Z');
    expect(schedule.text).toBe('2026-06-01T12:00:00.000Z');
    expect([schedule.latest(time - 1), schedule.latest(time), schedule.latest(time + DAY)]).toEqual([
      undefined,
      time,
      time,
    ]);
    expect([schedule.next(time - 1), schedule.next(time)]).toEqual([time, undefined]);
  },
);
