import { LockManager } from '../../lib/core/lock-manager.js';
import type { Duration } from '../../lib/api/duration.js';
import type { Lock } from '../../lib/api/lock.js';
import { kindOf, type Observer } from './observed-driver.js';
import { SqlBackend, type SqlType } from './sql-backend.js';
import { leaseRows, versionProvider } from './version-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];
// The latency of each reply, in ms, as with a database in another zone.
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

  async function application(shutdownGrace = 0, observer?: Observer): Promise<LockManager> {
    const provider = await versionProvider(backend, { commandTimeout: '10s', observer });
    const locks = new LockManager({ providers: { sql: provider }, namespace: 'test', shutdownGrace });
    managers.push(locks);
    await locks.start();
    backend.wireOf(provider)?.slow(FAR);
    return locks;
  }

  const acquireAll = (locks: LockManager, count: number, lease: Duration): Promise<Lock[]> =>
    Promise.all(Array.from({ length: count }, (_, key) => locks.acquire(`crowd:${key}`, { wait: '1m', lease })));

  it('hundreds of waiters delay neither the caller of a free key nor the renewal of a lease', async () => {
    let looks = 0;
    let isCrowded = false;
    /** For each other statement sent, how many reads by waiters were in flight. */
    const passed: number[] = [];
    let renewals = 0;
    const observer: Observer = (sql, values, answered) => {
      const kind = kindOf(sql);
      if (kind === 'look' && values.some((value) => String(value).startsWith('test#lease:crowd:'))) {
        looks += 1;
        void answered.then(() => (looks -= 1));
      } else if (isCrowded) passed.push(looks);
      if (kind === 'renewal') renewals += 1;
      return undefined;
    };
    const [here, there] = [await application(0, observer), await application()];
    await acquireAll(there, 500, '1m');
    const own = await Promise.all(Array.from({ length: 20 }, (_, key) => here.acquire(`own:${key}`, { lease: '3s' })));
    isCrowded = true;
    const waiting = Array.from({ length: 500 }, (_, key) =>
      here.acquire(`crowd:${key}`, { wait: Infinity }).catch(() => undefined),
    );
    // A lease of 3 s is renewed each second. After four renewals, it would have expired.
    for (let cycle = 0; cycle < 20 || renewals < 4; cycle += 1) {
      await (await here.acquire(`free:${cycle}`, { wait: '1m' })).release();
    }
    // Waiters use at most two of the four connections, so two are left for other callers.
    expect(passed.length).toBeGreaterThan(40);
    expect(Math.max(...passed)).toBeLessThanOrEqual(2);
    for (const lock of own) {
      expect(lock.isHeld()).toBe(true);
      await lock.release();
    }
    await here.stop();
    await Promise.all(waiting);
  }, 120_000);

  it('an orderly stop releases a thousand leases', async () => {
    const locks = await application();
    await acquireAll(locks, 1_000, '5m');
    await locks.stop();
    const rows = await leaseRows(backend.admin, 'test');
    expect(rows.filter(({ holder }) => holder !== null)).toEqual([]);
  }, 120_000);
});
