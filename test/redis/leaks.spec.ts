import { CountingClock } from './counting-clock.js';
import { granted, leave, RELEASE, request, startBackend, until, redisForTests } from './seam.js';

describe('what is left behind', () => {
  const redis = redisForTests();

  it('by 10 000 attempts that were cancelled: no key, no listener, no timer', async () => {
    const clock = new CountingClock();
    const { backend } = await startBackend({ url: redis.server.url }, { clock });
    const holder = granted(await backend.acquire(request('k', { lease: 600_000 })));
    let listeners = 0;
    for (let round = 0; round < 100; round += 1) {
      const asks = Array.from({ length: 100 }, () => request('k'));
      const answers = asks.map((ask) => {
        const { signal } = ask;
        const add = signal.addEventListener.bind(signal);
        const remove = signal.removeEventListener.bind(signal);
        signal.addEventListener = (...args: Parameters<typeof add>) => {
          listeners += 1;
          add(...args);
        };
        signal.removeEventListener = (...args: Parameters<typeof remove>) => {
          listeners -= 1;
          remove(...args);
        };
        return backend.acquire(ask);
      });
      // Some leave before they were sent, some before they were answered, some from the queue.
      if (round % 3 === 1) await Promise.resolve();
      if (round % 3 === 2) await backend.inspect('k');
      const released = asks.map((ask) => leave(backend, ask));
      expect(new Set(await Promise.all(answers))).toEqual(new Set(['busy']));
      expect(new Set(await Promise.all(released))).toEqual(new Set(['lost']));
    }
    await until(async () => (await backend.inspect('k'))?.waiters === 0, 'the queue is empty');
    expect(await backend.release(holder, RELEASE)).toBe('released');
    expect(listeners).toBe(0);
    await until(() => clock.armed === 0, 'no timer is set');
    await backend.close();
    // The counter stays. When a process was last seen expires by itself.
    const keys = await redis.admin.keys('*');
    expect(keys.filter((key) => !/^lock:\{\d+\}(seen)?$/.test(key))).toEqual([]);
    for (const key of keys.filter((name) => name.endsWith('seen')))
      expect(await redis.admin.pttl(key)).toBeGreaterThan(0);
  }, 120_000);

  it('by 2 000 locks on 2 000 keys: the counter', async () => {
    await redis.admin.flushall();
    const { backend } = await startBackend({ url: redis.server.url });
    const grants = await Promise.all(
      Array.from({ length: 2_000 }, async (_, index) =>
        granted(await backend.acquire(request(`k${index}`, { lease: 600_000 }))),
      ),
    );
    expect(await redis.admin.dbsize()).toBe(2_001);
    const renewed = await Promise.all(grants.map((grant) => backend.renew(grant, 600_000)));
    expect(renewed.filter((outcome) => typeof outcome === 'string')).toEqual([]);
    await Promise.all(grants.map(async (grant) => backend.release(grant, RELEASE)));
    expect(await redis.admin.dbsize()).toBe(1);
    await backend.close();
  });

  const connections = async () =>
    String(await redis.admin.call('CLIENT', ['LIST']))
      .trim()
      .split('\n').length;

  it('by a provider that was stopped: no connection, and nobody who waits for ever', async () => {
    const before = await connections();
    const { backend } = await startBackend({ url: redis.server.url });
    granted(await backend.acquire(request('k')));
    const waiter = backend.acquire(request('k'));
    await until(async () => (await backend.inspect('k'))?.waiters === 1, 'it waits');
    const stopped = backend.close();
    await expect(waiter).rejects.toThrow(/stopped|did not answer/);
    await stopped;
    await until(async () => (await connections()) === before, 'the connections are closed');
    await expect(backend.acquire(request('k'))).rejects.toThrow();
  });
});
