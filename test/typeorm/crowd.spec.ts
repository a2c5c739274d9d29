import { LockManager } from '../../lib/core/lock-manager.js';
import type { Duration } from '../../lib/api/duration.js';
import type { Lock } from '../../lib/api/lock.js';
import { SqlBackend, type SqlType } from './sql-backend.js';
import { leaseRows, versionProvider } from './version-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];
// Of each answer, in ms: a database in another zone.
const FAR = 10;

describe.each(databases)('hundreds of leases of one process, far from %s', (type) => {
  let backend: SqlBackend;
  const managers: LockManager[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  }, 60_000);
  afterAll(() => backend.stop());

  async function application(shutdownGrace = 0): Promise<LockManager> {
    const provider = await versionProvider(backend, { commandTimeout: '10s' });
    const locks = new LockManager({ providers: { sql: provider }, namespace: 'test', shutdownGrace });
    managers.push(locks);
    await locks.start();
    backend.wireOf(provider)?.slow(FAR);
    return locks;
  }

  const acquireAll = (locks: LockManager, count: number, lease: Duration): Promise<Lock[]> =>
    Promise.all(Array.from({ length: count }, (_, key) => locks.acquire(`crowd:${key}`, { wait: '1m', lease })));

  /** ms to acquire and release a free key, on the average of so many one after the other, and of more until so many ms are over. */
  async function cycleTime(locks: LockManager, cycles: number, atLeast = 0): Promise<number> {
    const begun = performance.now();
    let count = 0;
    for (; count < cycles || performance.now() - begun < atLeast; count += 1) {
      await (await locks.acquire(`free:${count}`, { wait: '20s' })).release();
    }
    return (performance.now() - begun) / count;
  }

  it('hundreds that wait keep no free key from its caller, and no lease from its renewal', async () => {
    const [here, there] = [await application(), await application()];
    await acquireAll(there, 500, '1m');
    const alone = await cycleTime(here, 20);
    const own = await Promise.all(Array.from({ length: 20 }, (_, key) => here.acquire(`own:${key}`, { lease: '3s' })));
    const waiting = Array.from({ length: 500 }, (_, key) =>
      here.acquire(`crowd:${key}`, { wait: Infinity }).catch(() => undefined),
    );
    // Longer than a lease. A quarter of the speed would be enough; it is three quarters.
    expect(await cycleTime(here, 20, 4_000)).toBeLessThan(4 * alone);
    for (const lock of own) {
      expect(lock.isHeld()).toBe(true);
      await lock.release();
    }
    await here.stop();
    await Promise.all(waiting);
  }, 120_000);

  it('an orderly stop frees a thousand', async () => {
    const locks = await application();
    await acquireAll(locks, 1_000, '5m');
    await locks.stop();
    const rows = await leaseRows(backend.admin, 'test');
    expect(rows.filter(({ holder }) => holder !== null)).toEqual([]);
  }, 120_000);
});
