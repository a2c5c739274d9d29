import { expect, it } from '@jest/globals';
import { ServerClock } from '../../lib/providers/redis/server-clock.js';

const observed = (): ServerClock => {
  const clock = new ServerClock();
  clock.observe(1_000, 5_000_000_000);
  return clock;
};

it('dates what the server did later by the sending of the command before it, less 1 %', () => {
  expect(observed().earliest(5_000_100_000, 2_000)).toBe(1_099);
  expect(observed().earliest(4_999_900_000, 2_000)).toBe(899);
});

it('dates nothing later than now', () => {
  expect(observed().earliest(5_009_000_000, 2_000)).toBe(2_000);
});

it('knows nothing before the first command, 10 s after the last one, and on another connection', () => {
  const clock = observed();
  expect(new ServerClock().earliest(5_000_100_000, 1_000)).toBeUndefined();
  expect(clock.earliest(5_000_100_000, 11_000)).toBe(1_099);
  expect(clock.earliest(5_000_100_000, 11_001)).toBeUndefined();
  clock.forget();
  expect(clock.earliest(5_000_100_000, 2_000)).toBeUndefined();
});
