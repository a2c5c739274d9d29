import cluster from 'node:cluster';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { startManager, watch } from '../core/manager-rig.js';

describe('the memory provider', () => {
  it('competes with another over one store, in one queue', async () => {
    const store = new MemoryStore();
    const one = await startManager({ provider: new MemoryLockProvider({ store }) });
    const { clock } = one;
    const locks = new LockManager({ providers: { main: new MemoryLockProvider({ store }) }, clock });
    await locks.start();
    const lock = await one.locks.acquire('a');
    const waiting = watch(locks.acquire('a'));
    await clock.advance(0);
    expect(waiting.state).toBe('pending');
    await lock.release();
    await clock.advance(0);
    expect(waiting.value?.fencingToken).toBeGreaterThan(lock.fencingToken ?? 0n);
  });

  it('keeps namespaces apart', async () => {
    const store = new MemoryStore();
    const [one, two] = await Promise.all(
      ['one', 'two'].map((namespace) => startManager({ namespace, provider: new MemoryLockProvider({ store }) })),
    );
    await one?.locks.acquire('a');
    await expect(two?.locks.acquire('a', { wait: 0 })).resolves.toBeDefined();
    expect(store.size).toBe(2);
  });

  it('shows readers and their number', async () => {
    const { locks } = await startManager();
    for (let twice = 0; twice < 2; twice += 1) await locks.acquire('a', { mode: 'shared' });
    expect(await locks.admin.inspect('a')).toMatchObject({ mode: 'shared', holders: 2, waiters: 0 });
  });

  it('warns in a worker of a cluster', async () => {
    const { isWorker } = cluster;
    Object.defineProperty(cluster, 'isWorker', { value: true, configurable: true });
    try {
      const { log } = await startManager();
      expect(log).toEqual([expect.stringContaining('one worker of a cluster')]);
    } finally {
      Object.defineProperty(cluster, 'isWorker', { value: isWorker, configurable: true });
    }
  });

  it('has a store for each application, unless one is given', async () => {
    const provider = new MemoryLockProvider();
    const [one, other] = [await startManager({ provider }), await startManager({ provider })];
    await one.locks.acquire('a');
    await expect(other.locks.tryAcquire('a')).resolves.not.toBeNull();
  });
});
