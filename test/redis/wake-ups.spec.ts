import { expect } from '@jest/globals';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { InterleavedNetwork } from './interleaved-network.js';
import {
  callScript,
  HERE,
  LOCK,
  type Operation,
  THERE,
  backendOf,
  granted,
  isSettled,
  redisForTests,
  RELEASE,
  request,
  startWithFakeClock,
  twoProcesses,
  until,
  untilWaiting,
} from './seam.js';

const layout = new KeyLayout('lock');
const lock = layout.lockOf('k');
const limited = { mode: 'limited', limited: { weight: 1, limit: 1 } } as const;

describe('a waiter for a lock that becomes free without a release', () => {
  const redis = redisForTests();
  const processes = twoProcesses(redis);
  const retain = (keepFor: number) => ({ keepFor, failed: false });
  /** Resolves when the lock is free by the server's clock: readers and limited holders leave their records behind. */
  const untilFree = () =>
    until(async () => {
      const [, ends = '0'] = await redis.admin.zrange(`${lock}}r`, '-1', '-1', 'WITHSCORES');
      const [seconds] = await redis.admin.time();
      if (Number(ends) > 0) return Number(ends) < Number(seconds) * 1_000;
      return (await redis.admin.exists(lock)) === 0;
    }, 'the lock is free');

  // The waiter's clock advances by less than the second after which it polls anyway.
  it.each([
    ['an exclusive lock', {}, 'exclusive'],
    ['a shared lock with a waiting writer', { mode: 'shared' }, 'exclusive'],
    ['a limited lock', limited, 'limited'],
  ] as const)(
    'polls at the end of minHold even if its request and the release were in one call: %s',
    async (_, terms, mode) => {
      const { backend, time } = await startWithFakeClock({ url: redis.server.url });
      const held = granted(await backend.acquire(request('k', { ...terms, minHold: 800 })));
      const waiter = backend.acquire(request('k', mode === 'limited' ? limited : {}));
      expect(await backend.release(held, retain(800))).toBe('released');
      expect(await isSettled(waiter)).toBe(false);
      await untilFree();
      await time.advance(900);
      await backend.release(granted(await waiter), RELEASE);
      await backend.close();
    },
  );

  it.each<[string, LockOptions]>([
    ['exclusive', {}],
    ['limited', { limit: 1 }],
  ])(
    'is served immediately, so short tasks with minHold follow one another (%s)',
    async (_, options) => {
      for (const count of [1, 2]) {
        const managers = Array.from(
          { length: count },
          () =>
            new LockManager({
              namespace: 'lock',
              providers: { redis: new RedisLockProvider({ url: redis.server.url }) },
            }),
        );
        for (const manager of managers) await manager.start();
        const TASKS = 16;
        const MIN_HOLD = 20;
        // The times of the grants by the server's clock. A token starts with this time, and the lock contains its
        // holder's token.
        const grants: number[] = [];
        const record = layout.lockOf(`${count}`);
        const task = async () => {
          const value = await redis.admin.get(record);
          grants.push(Number(value?.slice(1, 17)) / 1_000);
        };
        const begun = performance.now();
        await Promise.all(
          Array.from({ length: TASKS }, (__, index) =>
            managers[index % count]!.withLock(`${count}`, task, { ...options, minHold: MIN_HOLD, wait: '60s' }),
          ),
        );
        for (const [index, grant] of grants.entries()) {
          // The server may round each time up or down.
          if (index > 0) expect(grant - (grants[index - 1] ?? 0)).toBeGreaterThan(MIN_HOLD - 2);
        }
        // Without the notice, most tasks wait for the next second: 15 s in total, or 8 s in two processes.
        expect(performance.now() - begun).toBeLessThan(10 * TASKS * MIN_HOLD);
        for (const manager of managers) await manager.stop();
      }
    },
    60_000,
  );

  it('is served immediately even if the waiter before it has left', async () => {
    const { backend, time, events } = await startWithFakeClock({ url: redis.server.url });
    const { steady, shaky } = processes;
    const held = granted(await steady.backend.acquire(request('k')));
    const first = request('k', { since: performance.now() - 1_000 });
    const leaving = shaky.backend.acquire(first);
    await untilWaiting(shaky);
    const waiter = backend.acquire(request('k', { since: time.now() }));
    await untilWaiting({ backend, events });
    await steady.backend.release(held, retain(400));
    await shaky.backend.release(first, RELEASE);
    expect(await leaving).toBe('busy');
    await untilFree();
    await backend.inspect('nothing');
    await time.advance(500);
    await backend.release(granted(await waiter), RELEASE);
    await backend.close();
  });

  describe('on a slow network', () => {
    const time = new FakeClock();
    let network: InterleavedNetwork;
    const closing: (() => void)[] = [];

    const start = async () => {
      const listener = redis.admin.duplicate();
      network = new InterleavedNetwork(redis.admin, listener);
      const backend = backendOf({ client: network.client, commandTimeout: '1h' }, { clock: time });
      await network.carry(backend.connect());
      closing.push(() => {
        void backend.close();
        network.cut();
        listener.disconnect();
      });
      return backend;
    };
    afterEach(async () => {
      for (const close of closing.splice(0)) close();
      await new Promise((resolve) => setImmediate(resolve));
    });
    const settle = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
    /** Delivers everything that is sent now. */
    const deliver = async () => {
      await settle();
      while (network.requests.length + network.replies.length > 0) {
        await network.execute();
        network.answer();
        await settle();
      }
    };

    it('polls once more if the lock became free before the reply to its request', async () => {
      const held = granted(await processes.steady.backend.acquire(request('k')));
      const backend = await start();
      const waiter = backend.acquire(request('k'));
      await settle();
      await network.execute();
      await processes.steady.backend.release(held, retain(30));
      await network.collect();
      expect(network.messages.map(({ text }) => text)).toEqual([expect.stringMatching(/^k30:/)]);
      network.hear();
      await untilFree();
      // The time for its poll has passed, and its request is still in flight.
      await time.advance(100);
      expect(network.requests).toEqual([]);
      network.answer();
      await deliver();
      granted(await waiter);
    });

    it('polls once more if it resubscribed before the reply to its request', async () => {
      const held = granted(await processes.steady.backend.acquire(request('k')));
      const backend = await start();
      const waiter = backend.acquire(request('k'));
      await settle();
      await network.execute();
      // No process receives the grant, so the waiter is removed.
      await network.deafen();
      await processes.steady.backend.release(held, RELEASE);
      expect(await redis.admin.exists(lock, `${lock}}q`)).toBe(0);
      network.listen();
      await network.collect();
      await settle();
      network.answer();
      await deliver();
      granted(await waiter);
    });
  });
});

describe('the notice that a lock becomes free', () => {
  const redis = redisForTests();
  const run = (process: string, ...operations: Operation[]) => callScript(redis.admin, process, operations);
  const one: Operation = ['A3000', 'one', 60_000];
  const claimed = (holder: string) => expect.stringMatching(new RegExp(`^\\d{33,}:${holder} `));

  it('goes to the next request when the first one leaves', async () => {
    await run(HERE, one, ['A3000:20000', 'two', 60_000], ['A3000:10000', 'three', 60_000]);
    expect(await run(HERE, ['R', 'one', 900], ['R3000', 'two', 0])).toEqual([
      1,
      0,
      'k900:two',
      expect.stringMatching(/^k\d{1,3}:three$/),
    ]);
  });

  it('is not sent if the lock becomes free after the next poll of every process', async () => {
    await run(HERE, one, ['A3000:20000', 'two', 60_000], ['A3000:10000', 'three', 60_000]);
    expect(await run(HERE, ['R3000', 'two', 0])).toEqual([0]);
  });

  it('goes to the first request whose process listens', async () => {
    await run(HERE, one);
    await run(THERE, ['A3000:20000', 'two', 60_000]);
    await run(HERE, ['A3000:10000', 'three', 60_000]);
    expect(await run(HERE, ['R', 'one', 70_000])).toEqual([1, 'k70000:three']);
  });

  it.each([
    ['a writer', 'A300:20000'],
    ['a reader', 'a300:20000'],
    ['a limited holder', 'l300 1 1:20000'],
  ])('goes to the next request when the lock is handed to %s for less than a second', async (_, code) => {
    await run(HERE, one, [code, 'two', 300], ['A3000:10000', 'three', 60_000]);
    expect(await run(HERE, ['R', 'one', 0])).toEqual([1, claimed('two'), 'k300:three']);
  });

  it('goes to all requests for a limited lock, because each holder frees a part of it', async () => {
    const ask = (holder: string, age: number): Operation => [`l3000 1 2:${age}`, holder, 60_000];
    await run(HERE, ask('one', 4_000), ask('two', 3_000), ask('three', 2_000), ask('four', 1_000));
    expect(await run(HERE, ['e 1 2', 'one', 300])).toEqual([1, 'k300:three', 'k300:four']);
    expect(await run(HERE, ['e 1 2', 'two', 800])).toEqual([1, 'k800:three', 'k800:four']);
    expect(await redis.admin.zcard(`${LOCK}}q`)).toBe(2);
  });
});
