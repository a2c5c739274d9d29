import { jest } from '@jest/globals';

const uptime = jest.fn(() => 0);
jest.unstable_mockModule('node:os', () => ({ uptime }));
/** A machine whose clocks this test sets. */
let now = 1_000_000;
const timers = await import('../../lib/core/toolkit/real-timers.js');
jest.unstable_mockModule('../../lib/core/toolkit/real-timers.js', () => ({ ...timers, monotonicNow: () => now }));
const { systemClock } = await import('../../lib/core/toolkit/clock.js');

let wallTime = Date.UTC(2026, 0, 1);
let asleep = 0;
const pass = (ms: number) => {
  now += ms;
  wallTime += ms;
};

describe('the time since boot', () => {
  beforeEach(() => {
    jest.spyOn(Date, 'now').mockImplementation(() => wallTime);
    uptime.mockImplementation(() => (now + asleep) / 1_000);
    // Whatever was read before is too old.
    pass(1_000);
    systemClock.uptime();
    uptime.mockClear();
  });
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('is read once in 10 ms', () => {
    const before = systemClock.uptime();
    for (let ms = 0; ms < 9; ms += 1) {
      pass(1);
      expect(systemClock.uptime()).toBe(before);
    }
    expect(uptime).not.toHaveBeenCalled();
    pass(1);
    expect(systemClock.uptime()).toBe(before + 10);
  });

  it('shows a suspension immediately, although the monotonic clock stood still', () => {
    const before = systemClock.uptime();
    wallTime += 60_000;
    asleep += 60_000;
    expect(systemClock.uptime()).toBe(before + 60_000);
  });

  it('shows one that a wall clock that was set back hides, at the latest after 10 ms', () => {
    const before = systemClock.uptime();
    asleep += 60_000;
    pass(10);
    expect(systemClock.uptime()).toBe(before + 60_010);
  });

  it('is read again when the wall clock is set back', () => {
    wallTime -= 3_600_000;
    systemClock.uptime();
    expect(uptime).toHaveBeenCalledTimes(1);
  });
});
