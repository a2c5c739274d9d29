import { jest } from '@jest/globals';
import { LockManager } from '../../lib/core/lock-manager.js';
import { DenseSet } from '../../lib/core/toolkit/dense-set.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { startManager } from './manager-rig.js';

const FEW = 1_000;
const MANY = 8_000;
const RUNS = 3;
/** Other work on the machine makes any run dearer and none cheaper, so the cheapest of a few more is right in the end. */
const MOST_RUNS = 30;

/** Fails if the cheapest of all runs of `dear` costs `factor` times as much as the cheapest of `cheap`, or more. */
async function expectCheaper(dear: () => Promise<number>, cheap: () => Promise<number>, factor: number): Promise<void> {
  const costs = { dear: Infinity, cheap: Infinity };
  for (let run = 1; run <= MOST_RUNS; run += 1) {
    costs.cheap = Math.min(costs.cheap, await cheap());
    costs.dear = Math.min(costs.dear, await dear());
    if (run >= RUNS && costs.dear < factor * costs.cheap) return;
  }
  expect(costs.dear).toBeLessThan(factor * costs.cheap);
}

// A part that looks at all others for each would cost eight times as much for each of the many.
describe('the cost of a caller does not grow with the number of those that come in the same tick', () => {
  const managers: LockManager[] = [];
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });

  /** CPU time in µs of one of `count` callers that begin to wait. */
  async function cost(count: number, keyOf: (index: number) => string): Promise<number> {
    const locks = new LockManager({ providers: { main: new MemoryLockProvider() }, shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    const keys = new Set(Array.from({ length: count }, (_, index) => keyOf(index)));
    for (const key of keys) await locks.acquire(key);
    const begun = process.cpuUsage();
    const waiting = Array.from({ length: count }, (_, index) => locks.acquire(keyOf(index), { wait: Infinity }));
    const { user, system } = process.cpuUsage(begun);
    const ended = Promise.allSettled(waiting);
    await locks.stop();
    await ended;
    return (user + system) / count;
  }

  it.each([
    ['for one key', () => 'k'],
    ['for a key each', (index: number) => `order:${index}:invoice`],
  ])(
    '%s',
    async (_, keyOf) => {
      // The first ones are not compiled.
      for (let run = 0; run < RUNS; run += 1) await cost(FEW, keyOf);
      await expectCheaper(
        () => cost(MANY, keyOf),
        () => cost(FEW, keyOf),
        4,
      );
    },
    240_000,
  );
});

describe('the cost of a key', () => {
  it('does not depend on the text, so callers who choose keys cannot stop the event loop', async () => {
    const KEYS = 4_096;
    const BITS = 16;
    const START = 'x'.repeat(400);
    // For each hash of the form `31 * hash + character`, "Aa" and "BB" are the same.
    const keyOf = (pair: readonly [string, string], index: number) =>
      START + Array.from({ length: BITS }, (_, bit) => pair[(index >> bit) & 1]).join('');
    const locks = new LockManager({ providers: { main: new MemoryLockProvider() } });
    await locks.start();
    /** CPU time in µs of all, held at the same time. */
    const cost = async (pair: readonly [string, string]) => {
      const keys = Array.from({ length: KEYS }, (_, index) => keyOf(pair, index));
      const begun = process.cpuUsage();
      const held = await Promise.all(keys.map((key) => locks.acquire(key)));
      await Promise.all(held.map((lock) => lock.release()));
      const { user, system } = process.cpuUsage(begun);
      return user + system;
    };
    try {
      await expectCheaper(
        () => cost(['Aa', 'BB']),
        () => cost(['Aa', 'BC']),
        10,
      );
    } finally {
      await locks.stop();
    }
  }, 240_000);
});

it('the answer "busy" goes over none of the many locks that the process holds', async () => {
  const { locks } = await startManager();
  await locks.acquire('busy');
  for (let each = 0; each < 1_000; each += 1) await locks.acquire(`key ${each}`);
  const overAll = [
    jest.spyOn(DenseSet.prototype, 'values'),
    ...(['values', 'keys', 'entries', 'forEach'] as const).map((goOver) => jest.spyOn(Map.prototype, goOver)),
  ];
  expect(await locks.tryAcquire('busy')).toBeNull();
  const over = overAll.flatMap(({ mock }) => mock.contexts as unknown as readonly { readonly size: number }[]);
  for (const goesOver of overAll) goesOver.mockRestore();
  // Those of Jest are smaller.
  expect(over.filter(({ size }) => size >= 1_000)).toEqual([]);
});
