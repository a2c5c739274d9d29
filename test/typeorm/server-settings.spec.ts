import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { once } from 'node:events';
import type { QueryRunner } from 'typeorm';
import { LockManager } from '../../lib/engine/lock-manager.js';
import type { LockProvider } from '../../lib/engine/lock-provider.js';
import { entityManagerOf } from '../../lib/providers/typeorm/index.js';
import { SqlBackend, type SqlType } from './sql-backend.js';
import { leaseRows, versionProvider } from './version-backend.js';

const managers: LockManager[] = [];

async function running(provider: LockProvider): Promise<LockManager> {
  const locks = new LockManager({ providers: { sql: provider }, namespace: 'test', shutdownGrace: 0 });
  managers.push(locks);
  await locks.start();
  return locks;
}

/** A server of its own, whose settings may be changed. */
function serverOf(type: SqlType): () => SqlBackend {
  let backend: SqlBackend;
  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterEach(() => Promise.all(managers.splice(0).map((manager) => manager.stop())));
  afterAll(() => backend.stop());
  return () => backend;
}

// What the server or the application sets for all its connections is none of a lock's.
describe('settings of MariaDB', () => {
  const backend = serverOf('mariadb');
  const LIMITS = ['idle_transaction_timeout', 'idle_readonly_transaction_timeout', 'idle_write_transaction_timeout'];

  /** Runs `work` on a server with these settings, of which connections that are there already know nothing. */
  async function set(settings: Record<string, number>, work: () => Promise<void>): Promise<void> {
    const { admin } = backend();
    const names = Object.keys(settings);
    const [before] = await admin.query<Record<string, number>[]>(
      `SELECT ${names.map((name) => `@@GLOBAL.${name} AS ${name}`).join()}`,
    );
    const apply = (values: Record<string, number>) =>
      admin.query(`SET ${names.map((name) => `GLOBAL ${name} = ${values[name]!}`).join()}`);
    await apply(settings);
    await work().finally(() => apply(before!));
  }

  it('a limit for idle transactions ends others, and no lock', async () => {
    await set(Object.fromEntries(LIMITS.map((name) => [name, 1])), async () => {
      // No heartbeat is due for as long as the test takes.
      const locks = await running(await backend().provider({ sessionGuard: '30s' }));
      await using lock = await locks.acquire('a');
      const rival = await backend().source().initialize();
      const runner: QueryRunner = rival.createQueryRunner();
      const connection = (await runner.connect()) as NodeJS.EventEmitter;
      const ended = once(connection, 'error');
      await runner.startTransaction();
      await runner.query('SELECT * FROM distributed_lock FOR UPDATE SKIP LOCKED');
      await ended;
      // The server has had the time for the lock's as well, which was idle for longer.
      expect(lock.isHeld()).toBe(true);
      const [limits] = await entityManagerOf(lock).query<object[]>(
        `SELECT ${LIMITS.map((name) => `@@${name} AS ${name}`).join()}`,
      );
      expect(limits).toEqual(Object.fromEntries(LIMITS.map((name) => [name, expect.anything()])));
      expect(Object.values(limits!).map(Number)).toEqual([0, 0, 0]);
      await runner.release().catch(() => undefined);
      await rival.destroy().catch(() => undefined);
    });
  });

  it('with autocommit off a lease and a row are committed all the same', async () => {
    await set({ autocommit: 0 }, async () => {
      const leases = await running(await versionProvider(backend()));
      await using lease = await leases.acquire('leased');
      const [row] = await leaseRows(backend().admin, 'test');
      expect(row).toMatchObject({ holder: lease.holder, token: lease.fencingToken });
      const rows = await running(await backend().provider({ fencing: true }));
      await using lock = await rows.acquire('locked', { wait: 1_000 });
      expect(lock.isHeld()).toBe(true);
    });
  });
});
