import { AsyncLocalStorage } from 'node:async_hooks';
import { jest } from '@jest/globals';

const uptime = jest.fn(() => 0);
jest.unstable_mockModule('node:os', () => ({ uptime }));
/** The time of the machine's monotonic clock. */
let now = 0;
/** Replaces the single Node.js timer. */
let armed: { fire(): void; delay: number; isRef: boolean } | undefined;
let armings = 0;
const real = await import('../../lib/core/toolkit/real-timers.js');
jest.unstable_mockModule('../../lib/core/toolkit/real-timers.js', () => ({
  ...real,
  monotonicNow: () => now,
  setTimeout: (fire: () => void, delay: number) => {
    armings += 1;
    armed = { fire, delay, isRef: true };
    const timer = armed;
    return { ref: () => (timer.isRef = true), unref: () => (timer.isRef = false), timer };
  },
  clearTimeout: ({ timer }: { timer: unknown }) => {
    if (armed === timer) armed = undefined;
  },
}));
const { Timers } = await import('../../lib/core/toolkit/timers.js');
const { systemClock } = await import('../../lib/core/toolkit/clock.js');

/** Fires the Node.js timer, `early` ms before its time. */
async function fire(early = 0): Promise<void> {
  const timer = armed;
  if (!timer) throw new Error('The timer is not set.');
  now += timer.delay - early;
  // Runs from the event loop, as in Node.js: from a promise job, other jobs would run before the next tick.
  real.setImmediate(timer.fire);
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => real.setImmediate(resolve));
}

describe('timers that share one Node.js timer', () => {
  let timers: InstanceType<typeof Timers>;
  let called: string[];
  const call = (name: string) => () => void called.push(name);

  beforeEach(() => {
    timers = new Timers();
    called = [];
    armings = 0;
    armed = undefined;
  });

  it('set it to the earliest, and not again when timers are set and cleared', async () => {
    for (let cycle = 0; cycle < 1_000; cycle += 1) {
      timers.clear(timers.set(call('never'), 5_000, true));
      now += 1;
    }
    expect(armings).toBe(1);
    timers.set(call('later'), 9_000, true);
    timers.set(call('soon'), 10, true);
    expect([armings, armed?.delay]).toEqual([2, 10]);
    await fire();
    expect(called).toEqual(['soon']);
    expect(armed?.delay).toBe(8_990);
    await fire();
    expect(called).toEqual(['soon', 'later']);
    expect(armed).toBeUndefined();
  });

  it('fire in order, whatever the order in which they were set and cleared', async () => {
    const delays = Array.from({ length: 500 }, (_, index) => (index * 7_919) % 500);
    const set = delays.map((delay) => timers.set(call(String(delay)), delay, false));
    set.forEach((timer, index) => {
      if (index % 3 === 0) timers.clear(timer);
    });
    const expected = delays.filter((_, index) => index % 3 !== 0).sort((one, other) => one - other);
    now += 1_000;
    if (armed) armed.delay = 0;
    armed?.fire();
    while (called.length < expected.length) await new Promise((resolve) => real.setImmediate(resolve));
    expect(called).toEqual(expected.map(String));
  });

  it('run the promise jobs of one callback before the next, and skip a timer that a callback due at the same moment cleared', async () => {
    const cleared = timers.set(call('cleared'), 12, false);
    timers.set(
      () => {
        called.push('first');
        timers.clear(cleared);
        void Promise.resolve()
          .then(() => undefined)
          .then(call('job of the first'));
      },
      10,
      false,
    );
    timers.set(call('second'), 11, false);
    now += 5;
    if (armed) armed.delay = 20;
    await fire();
    expect(called).toEqual(['first', 'job of the first', 'second']);
  });

  it('treat the earliest as due when the Node.js timer fires, even if the clock lags', async () => {
    timers.set(call('early'), 10, false);
    await fire(0.4);
    expect(called).toEqual(['early']);
    expect(armings).toBe(1);
  });

  it('continue after a callback throws', async () => {
    const error = new Error('a callback');
    timers.set(
      () => {
        throw error;
      },
      10,
      false,
    );
    timers.set(call('next'), 10, false);
    now += 20;
    expect(() => armed?.fire()).toThrow(error);
    await new Promise((resolve) => real.setImmediate(resolve));
    expect(called).toEqual(['next']);
  });

  it('keep the process alive while any timer requires it', async () => {
    timers.set(call('background'), 100, false);
    expect(armed?.isRef).toBe(false);
    const awaited = timers.set(call('awaited'), 200, true);
    expect(armed?.isRef).toBe(true);
    timers.clear(awaited);
    expect(armed?.isRef).toBe(false);
    timers.set(call('sooner'), 10, true);
    expect(armed?.isRef).toBe(true);
    await fire();
    expect(armed?.isRef).toBe(false);
  });

  it('fire after the maximum Node.js delay if the delay is longer', async () => {
    const LONGEST = 2 ** 31 - 1;
    timers.set(call('never'), Infinity, true);
    expect([armed?.delay, armed?.isRef]).toEqual([LONGEST, true]);
    await fire();
    expect(called).toEqual(['never']);
  });

  it('are disarmed at the end of an application, unless another one has set a timer', () => {
    const other = timers.set(call('other'), 10, true);
    timers.disarmIfIdle();
    expect(armed).toBeDefined();
    timers.clear(other);
    expect(armed).toBeDefined();
    timers.disarmIfIdle();
    expect(armed).toBeUndefined();
    timers.set(call('again'), 10, true);
    expect(armed).toBeDefined();
  });

  it("run detached from any caller's async context", async () => {
    const context = new AsyncLocalStorage<string>();
    const seen: unknown[] = [];
    context.run('a caller', () => timers.set(() => seen.push(context.getStore()), 10, false));
    await fire();
    expect(seen).toEqual([undefined]);
  });
});

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
    // Makes any earlier reading stale.
    pass(1_000);
    systemClock.uptime();
    uptime.mockClear();
  });
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('is read at most every 10 ms', () => {
    const before = systemClock.uptime();
    for (let ms = 0; ms < 9; ms += 1) {
      pass(1);
      expect(systemClock.uptime()).toBe(before);
    }
    expect(uptime).not.toHaveBeenCalled();
    pass(1);
    expect(systemClock.uptime()).toBe(before + 10);
  });

  it('reflects a suspension immediately, even though the monotonic clock stood still', () => {
    const before = systemClock.uptime();
    wallTime += 60_000;
    asleep += 60_000;
    expect(systemClock.uptime()).toBe(before + 60_000);
  });

  it('reflects a suspension hidden by a wall clock set back within 10 ms', () => {
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
