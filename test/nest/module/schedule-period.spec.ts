import { createRequire } from 'node:module';
import { CronExpression } from '@nestjs/schedule';
import { cronPeriod } from '../../../lib/nest/module/schedule-period.js';

// The package that runs the jobs of @nestjs/schedule, as that package finds it.
const requireOfSchedule = createRequire(createRequire(import.meta.url).resolve('@nestjs/schedule/package.json'));
const { CronTime } = requireOfSchedule('cron') as {
  CronTime: new (source: string, zone: string) => { getNextDateFrom(start: Date, zone: string): { toJSDate(): Date } };
};

/** The shortest time between the first ticks, which the package computes one after the other: of several years at most. */
function shortestGap(expression: string): number {
  const time = new CronTime(expression, 'UTC');
  const next = (start: Date) => time.getNextDateFrom(start, 'UTC').toJSDate();
  let shortest = Infinity;
  let last = next(new Date('2023-12-31T23:59:30Z'));
  for (let tick = 0; tick < 60 && last < new Date('2027-06-01'); tick++) {
    const after = next(last);
    shortest = Math.min(shortest, after.getTime() - last.getTime());
    last = after;
  }
  return shortest;
}

const EXPRESSIONS = [
  ...new Set<string>(Object.values(CronExpression)),
  '@hourly',
  '@WEEKLY',
  '@weekends',
  '0 9,17 * * 1-5',
  '0 9,17 * * mon-fri',
  '59 23 * * *',
  '30 59 23 * * 6,7',
  '10,50 * * * * *',
  '55-59/2 * * * *',
  '7/20 * * * *',
  '0 0 1,15 * *',
  '0 0 13 * 5',
  '0 0 31 jan,mar *',
  '0 0 1 * 1',
  '0 12 29 2 *',
  ' 0   0 * * 0-7 ',
];

it.each(EXPRESSIONS)('%s: the shortest time between the ticks of the package', (expression) => {
  expect(cronPeriod(expression)).toBe(shortestGap(expression));
});

it.each(['', '* * * *', '* * * * * * *', '60 * * * *', '* 5-1 * * *', '*/0 * * * *', 'monday * * * *', '0 0 L * *'])(
  'nothing for "%s", which the package refuses',
  (expression) => {
    expect(() => new CronTime(expression, 'UTC')).toThrow();
    expect(cronPeriod(expression)).toBeUndefined();
  },
);
