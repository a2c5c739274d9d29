import { afterEach, describe, expect, it } from '@jest/globals';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';

const FEW = 1_000;
const MANY = 8_000;
const RUNS = 3;

// A part that looks at all others for each would cost eight times as much for each of the many.
describe('the cost of a caller does not grow with the number of those that come in the same tick', () => {
  const managers: LockManager[] = [];
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });

  /** CPU time in µs of one of `count` callers that begin to wait, the least of some runs. */
  async function cost(count: number, keyOf: (index: number) => string): Promise<number> {
    const costs: number[] = [];
    for (let run = 0; run < RUNS; run += 1) {
      const locks = new LockManager({ providers: { main: new MemoryLockProvider() }, shutdownGrace: 0 });
      managers.push(locks);
      await locks.start();
      const keys = new Set(Array.from({ length: count }, (_, index) => keyOf(index)));
      for (const key of keys) await locks.acquire(key);
      const begun = process.cpuUsage();
      const waiting = Array.from({ length: count }, (_, index) => locks.acquire(keyOf(index), { wait: Infinity }));
      const { user, system } = process.cpuUsage(begun);
      costs.push((user + system) / count);
      const ended = Promise.allSettled(waiting);
      await locks.stop();
      await ended;
    }
    return Math.min(...costs);
  }

  it.each([
    ['for one key', () => 'k'],
    ['for a key each', (index: number) => `order:${index}:invoice`],
  ])(
    '%s',
    async (_, keyOf) => {
      // The first ones are not compiled.
      await cost(FEW, keyOf);
      expect(await cost(MANY, keyOf)).toBeLessThan(4 * (await cost(FEW, keyOf)));
    },
    120_000,
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
    /** CPU time in µs of all, held at the same time, the least of some runs. */
    const cost = async (pair: readonly [string, string]) => {
      const costs: number[] = [];
      for (let run = 0; run < RUNS; run += 1) {
        const keys = Array.from({ length: KEYS }, (_, index) => keyOf(pair, index));
        const begun = process.cpuUsage();
        const held = await Promise.all(keys.map((key) => locks.acquire(key)));
        await Promise.all(held.map((lock) => lock.release()));
        const { user, system } = process.cpuUsage(begun);
        costs.push(user + system);
      }
      return Math.min(...costs);
    };
    const harmless = await cost(['Aa', 'BC']);
    const colliding = await cost(['Aa', 'BB']);
    await locks.stop();
    expect(colliding).toBeLessThan(10 * harmless);
  }, 120_000);
});
