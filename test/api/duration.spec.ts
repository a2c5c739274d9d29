import { readFileSync } from 'node:fs';
import { duration, toMilliseconds } from '../../lib/api/duration.js';
import { LockConfigError } from '../../lib/api/errors.js';

describe('a duration', () => {
  it.each([
    [0, 0],
    [1.5, 1.5],
    ['500ms', 500],
    ['5s', 5_000],
    ['2m', 120_000],
    ['1h', 3_600_000],
    ['1.5s', 1_500],
    ['7d', 604_800_000],
    [2 ** 31 - 1, 2 ** 31 - 1],
  ])('converts %p to %p ms', (value, expected) => {
    expect(toMilliseconds(value, 'wait')).toBe(expected);
  });

  it.each([
    ...[
      NaN,
      -1,
      Infinity,
      -Infinity,
      2 ** 31,
      '',
      ' ',
      '5',
      '5 s',
      '5 parsecs',
      '5seconds',
      '-5s',
      '+5s',
      '1e3s',
      '.5s',
      '0x5s',
      ' 5s',
      '5S',
      '25d',
      'Infinity',
      'x'.repeat(101),
    ],
    ...[`${'9'.repeat(101)}ms`, null, {}, true, 5n],
  ])('rejects %p', (value) => {
    expect(() => toMilliseconds(value as number, 'wait')).toThrow(LockConfigError);
    expect(() => toMilliseconds(value as number, 'wait')).toThrow(/^Option "wait" is .*500ms/);
  });

  it("enforces the option's bounds", () => {
    expect(toMilliseconds(Infinity, 'wait', { infinite: true })).toBe(Infinity);
    expect(() => toMilliseconds(99, 'lease', { min: 100 })).toThrow('100 ms to 24.8 days');
    expect(toMilliseconds('1h', 'rhythm', { max: 3_600_000 })).toBe(3_600_000);
    expect(() => toMilliseconds(3_600_001, 'rhythm', { max: 3_600_000 })).toThrow('0 ms to 1 hour');
    expect(() => toMilliseconds(-Infinity, 'wait', { infinite: true })).toThrow('or Infinity');
  });

  it('the options page documents the maximum of each duration', () => {
    const rows = readFileSync(new URL('../../docs/reference/options.md', import.meta.url), 'utf8').split('\n');
    const durations = rows.filter((row) => /^\|`\w+`\|duration\b/.test(row));
    expect(durations.length).toBeGreaterThan(20);
    // A module default refers to the option of a call.
    expect(durations.filter((row) => !/24\.8 days|at most a day|As `LockOptions\.\w+`/.test(row))).toEqual([]);
  });

  it('shortens a long value in the message', () => {
    expect(() => toMilliseconds('y'.repeat(1_000), 'wait')).toThrow(/^.{1,250}$/);
  });

  it('converts values from configuration', () => {
    expect(duration('24d')).toBe(2_073_600_000);
    for (const text of ['5', '-1s', '', '90d']) expect(() => duration(text)).toThrow(LockConfigError);
    expect(() => duration('5')).toThrow('a duration of 0 ms to 24.8 days');
  });
});
