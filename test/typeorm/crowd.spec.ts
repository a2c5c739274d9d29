import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
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
    const provider = await versionProvider(backend, { statementTimeout: '10s' });
    const locks = new LockManager({ providers: { sql: provider }, namespace: 'test', shutdownGrace });
    managers.push(locks);
    await locks.start();
    backend.wireOf(provider)?.slow(FAR);
    return locks;
  }

  const acquireAll = (locks: LockManager, count: number, lease: Duration): Promise<Lock[]> =>
    Promise.all(Array.from({ length: count }, (_, key) => locks.acquire(`crowd:${key}`, { wait: '1m', lease })));

  /** How many free keys are acquired and released, one after the other, in this many ms. */
  async function cyclesWithin(locks: LockManager, milliseconds: number): Promise<number> {
    const begun = performance.now();
    let cycles = 0;
    for (; performance.now() - begun < milliseconds; cycles += 1) {
      await (await locks.acquire(`free:${cycles}`, { wait: '1m' })).release();
    }
    return cycles;
  }

  it('hundreds that wait keep no free key from its caller, and no lease from its renewal', async () => {
    const [here, there] = [await application(), await application()];
    await acquireAll(there, 500, '1m');
    const alone = await cyclesWithin(here, 1_000);
    const own = await Promise.all(Array.from({ length: 20 }, (_, key) => here.acquire(`own:${key}`, { lease: '3s' })));
    const waiting = Array.from({ length: 500 }, (_, key) =>
      here.acquire(`crowd:${key}`, { wait: Infinity }).catch(() => undefined),
    );
    const crowded = await cyclesWithin(here, 4_000);
    // A quarter of the speed would be enough; it is three quarters.
    expect(crowded).toBeGreaterThan(alone);
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
