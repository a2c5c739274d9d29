import fc from 'fast-check';
import { withAbort } from '../../lib/core/toolkit/abort-listeners.js';
import { DenseSet, type DenseSetItem } from '../../lib/core/toolkit/dense-set.js';
import { firstToken } from '../../lib/core/toolkit/fencing-token.js';
import { pause, withTimeout } from '../../lib/core/toolkit/timing.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { exploration } from '../exploration.js';
import { SuspensionDetector } from '../../lib/core/toolkit/suspension.js';
import { HolderTable } from '../../lib/providers/redis/holder-table.js';

const never = new Promise<string>(() => undefined);

describe('withTimeout', () => {
  it('passes on the outcome of the work, and leaves no timer', async () => {
    const clock = new FakeClock();
    expect(await withTimeout(clock, 100, Promise.resolve('done'))).toBe('done');
    await expect(withTimeout(clock, 100, Promise.reject(new Error('failed')))).rejects.toThrow('failed');
    expect(clock.pendingTimers).toBe(0);
  });

  it('gives up on late work, and returns undefined or the fallback', async () => {
    const clock = new FakeClock();
    const fail = () => {
      throw new Error('late');
    };
    const outcomes = Promise.allSettled([
      withTimeout(clock, 100, never),
      withTimeout(clock, 100, never, () => 'late'),
      withTimeout(clock, 100, never, fail),
    ]);
    await clock.advance(100);
    expect(await outcomes).toEqual([
      { status: 'fulfilled', value: undefined },
      { status: 'fulfilled', value: 'late' },
      { status: 'rejected', reason: new Error('late') },
    ]);
  });

  it('does not call the fallback for work that finished in time', async () => {
    const clock = new FakeClock();
    let calls = 0;
    await withTimeout(clock, 100, Promise.resolve(), () => (calls += 1));
    await clock.advance(200);
    expect(calls).toBe(0);
  });
});

describe('pause', () => {
  it('ends after its time or on abort, or immediately if the signal is already aborted', async () => {
    const clock = new FakeClock();
    const caller = new AbortController();
    const ends: string[] = [];
    void pause(clock, 100, caller.signal).then(() => ends.push('time'));
    void pause(clock, 500, caller.signal, true).then(() => ends.push('signal'));
    await clock.advance(100);
    expect(ends).toEqual(['time']);
    caller.abort();
    await clock.advance(0);
    expect(ends).toEqual(['time', 'signal']);
    await pause(clock, 500, caller.signal);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe('withAbort', () => {
  it('calls back only once if the signal aborts during the work', async () => {
    const caller = new AbortController();
    let calls = 0;
    const count = () => (calls += 1);
    const done = await withAbort(caller.signal, count, () => {
      caller.abort();
      return Promise.resolve('done');
    });
    expect([done, calls]).toEqual(['done', 1]);
  });

  it('calls back before the work if the signal is already aborted, but never after the work', async () => {
    const calls: string[] = [];
    const call = () => calls.push('aborted');
    const work = () => Promise.resolve(calls.push('work'));
    await withAbort(AbortSignal.abort(), call, work);
    const caller = new AbortController();
    await withAbort(caller.signal, call, work);
    caller.abort();
    expect(calls).toEqual(['aborted', 'work', 'work']);
  });
});

describe('DenseSet', () => {
  class Member implements DenseSetItem {
    slot = -1;
  }

  const step = fc.record({ do: fc.constantFrom('add' as const, 'delete' as const), which: fc.nat({ max: 19 }) });

  it('behaves like a Set', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
        const members = Array.from({ length: 20 }, () => new Member());
        const [dense, set] = [new DenseSet<Member>(), new Set<Member>()];
        for (const each of steps) {
          const member = members[each.which] as Member;
          if (each.do === 'delete') expect(dense.delete(member)).toBe(set.delete(member));
          else if (!dense.has(member)) {
            dense.add(member);
            set.add(member);
          }
          expect(dense.size).toBe(set.size);
          expect(new Set(dense.values())).toEqual(set);
          for (const one of members) expect(dense.has(one)).toBe(set.has(one));
        }
      }),
      { numRuns: exploration(20, 500) },
    );
  });

  it('supports deletion during iteration', () => {
    const members = Array.from({ length: 5 }, () => new Member());
    const dense = new DenseSet<Member>();
    for (const member of members) dense.add(member);
    for (const member of dense.values()) expect(dense.delete(member)).toBe(true);
    expect(dense.size).toBe(0);
  });
});

describe('the token of a grant', () => {
  it('is the first of the block that ends with the last token', () => {
    expect(firstToken('exclusive', 107n, 8)).toBe(100n);
    expect(firstToken('exclusive', 107n, 1)).toBe(107n);
    expect(firstToken('shared', 107n)).toBe(107n);
  });

  it('is null for a limited lock, whose holders hold it concurrently', () => {
    expect(firstToken('limited', 107n, 8)).toBeNull();
  });
});

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;
const MONTH = 30 * 24 * HOUR;

/** A clock whose time since boot drifts from its monotonic time by `drift`, and advances in steps of `step` ms. */
class DriftingClock extends FakeClock {
  constructor(
    private readonly drift: number,
    private readonly step = 1,
  ) {
    super();
  }

  override uptime(): number {
    return Math.floor((super.uptime() + this.now() * this.drift) / this.step) * this.step;
  }
}

describe('two clocks that drift apart by 25 ppm', () => {
  it.each([
    ['every ten seconds', 25e-6, 10 * SECOND],
    ['every ten seconds, backwards', -25e-6, 10 * SECOND],
    ['every hour', 25e-6, HOUR],
    ['only once', 25e-6, MONTH],
  ])('are not mistaken for a suspension within a month if checked %s', (_, drift, every) => {
    const clock = new DriftingClock(drift, 10);
    const detector = new SuspensionDetector(clock);
    for (let time = 0; time < MONTH; time += every) {
      clock.block(every);
      detector.observe();
    }
    expect(detector.observe()).toBe(0);
    clock.suspend(10_000 + every * 0.001);
    expect(detector.observe()).toBe(1);
    expect(detector.observe()).toBe(1);
  });

  it('are not mistaken for a suspension if the time since boot is in whole seconds', () => {
    const clock = new DriftingClock(25e-6, SECOND);
    const detector = new SuspensionDetector(clock);
    for (let time = 0; time < MONTH / 10; time += 700) {
      clock.block(700);
      detector.observe();
    }
    expect(detector.observe()).toBe(0);
  });

  it('do not hide short suspensions in a row', () => {
    const clock = new DriftingClock(25e-6);
    const detector = new SuspensionDetector(clock);
    for (let each = 0; each < 5; each += 1) {
      clock.block(SECOND);
      clock.suspend(500);
      detector.observe();
    }
    expect(detector.observe()).toBe(1);
  });
});

describe('the suspension check at a grant', () => {
  function watched() {
    const clock = new FakeClock();
    const detector = new SuspensionDetector(clock);
    let looks = 0;
    const { uptime } = clock;
    clock.uptime = () => {
      looks += 1;
      return uptime.call(clock);
    };
    return { clock, detector, looks: () => looks };
  }

  it('does not read the time since boot while the wall clock agrees', () => {
    const { clock, detector, looks } = watched();
    clock.block(60_000);
    expect(detector.observeGrant(clock.now())).toBe(0);
    expect(looks()).toBe(0);
  });

  it('detects a suspension, and short ones that add up', () => {
    const { clock, detector } = watched();
    clock.suspend(2_100);
    expect(detector.observeGrant(clock.now())).toBe(1);
    for (let each = 0; each < 6; each += 1) {
      clock.suspend(500);
      detector.observeGrant(clock.now());
    }
    expect(detector.observeGrant(clock.now())).toBe(2);
  });

  it('does not mistake a step of the wall clock for a suspension', () => {
    const { clock, detector, looks } = watched();
    clock.stepWallTime(3_600_000);
    expect(detector.observeGrant(clock.now())).toBe(0);
    expect(looks()).toBe(1);
    clock.stepWallTime(-3_600_000);
    expect(detector.observeGrant(clock.now())).toBe(0);
  });
});

// Few ids, so that they repeat, and with the same endings, so that they collide.
const holderId = fc.nat({ max: 400 }).map((number) =>
  (number % 40)
    .toString(16)
    .padStart(8, '0')
    .padStart(32 - (number % 7), 'f'),
);

const tableStep = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('set' as const), id: holderId, value: fc.nat() }) },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom('delete' as const, 'get' as const), id: holderId }),
  },
);

describe('HolderTable', () => {
  it('behaves like a Map', () => {
    fc.assert(
      fc.property(fc.array(tableStep, { maxLength: 600, size: 'max' }), (steps) => {
        const table = new HolderTable<number>();
        const map = new Map<string, number>();
        for (const each of steps) {
          if (each.do === 'set') {
            table.set(each.id, each.value);
            map.set(each.id, each.value);
          } else expect(table[each.do](each.id)).toBe(map[each.do](each.id));
          expect(table.size).toBe(map.size);
        }
        expect(table.values().sort()).toEqual([...map.values()].sort());
      }),
      { numRuns: exploration(8, 500) },
    );
  });

  it('grows and shrinks', () => {
    const table = new HolderTable<number>();
    const idOf = (number: number) => number.toString(16).padStart(32, '0');
    for (let number = 0; number < 10_000; number += 1) table.set(idOf(number), number);
    expect(table.values().length).toBe(10_000);
    for (let number = 0; number < 10_000; number += 1) expect(table.get(idOf(number))).toBe(number);
    for (let number = 0; number < 9_990; number += 1) expect(table.delete(idOf(number))).toBe(true);
    expect(table.values().sort()).toEqual(Array.from({ length: 10 }, (_, index) => 9_990 + index));
    table.clear();
    expect([table.size, table.get(idOf(9_999)), table.values()]).toEqual([0, undefined, []]);
    table.set(idOf(1), 1);
    expect(table.values()).toEqual([1]);
  });
});
