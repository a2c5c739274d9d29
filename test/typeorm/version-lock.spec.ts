import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { jest } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Lock } from '../../lib/api/lock.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { LockBusyError, LockConfigError } from '../../lib/api/errors.js';
import { LockTables1700000000000, TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { kindOf, type Observer } from './observed-driver.js';
import { LockProcesses, SqlBackend, type SqlType, TABLE } from './sql-backend.js';
import { leaseRows, versionProvider } from './version-backend.js';

// To test one database only, run `npm test -- test/typeorm/version-lock.spec.ts -t mariadb`.
const databases: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(databases)('leases on %s', (type) => {
  const backend = SqlBackend.forTests(type);
  const processes = new LockProcesses();

  const application = async (provider?: TypeOrmVersionLockProvider) =>
    processes.start(provider ?? (await versionProvider(backend)));

  it('a grant whose reply was lost is found again, with its token', async () => {
    const provider = await versionProvider(backend);
    const locks = await application(provider);
    await (await locks.acquire('lost reply')).release();
    const before = (await leaseRows(backend.admin, 'test')).find(({ name }) => name === 'test#lease:lost_reply')?.token;
    const wire = backend.wireOf(provider)!;
    wire.loseReplies();
    const late = locks.acquire('lost reply');
    const isClaimed = async () => (await leaseRows(backend.admin, 'test')).some(({ holder }) => holder !== null);
    // The read needs its reply, and the claim must lose its reply: replies pass until the row is claimed.
    wire.passReplies();
    wire.holdReplies();
    for (let claimed = false; !claimed; claimed = await isClaimed()) {
      wire.passReplies();
      wire.holdReplies();
      await sleep(1);
    }
    wire.cut();
    wire.passReplies();
    const [row] = (await leaseRows(backend.admin, 'test')).filter(({ holder }) => holder !== null);
    await using lock = await late;
    expect(lock.fencingToken).toBe(row!.token);
    expect(row!.token).not.toBe(before);
    expect(lock.holder).toBe(row!.holder);
  });

  it('a free key is never busy, however late the server replies', async () => {
    const clock = new FakeClock();
    let delay = 0;
    const locks = await processes.start(await versionProvider(backend, { observer: () => clock.advance(delay) }), {
      clock,
    });
    for (const [key, late] of [
      ['new', 400],
      ['late', 1_500],
    ] as const) {
      delay = late;
      const outcome = await locks.acquire(key, { wait: '1s' }).catch((error: unknown) => error);
      delay = 0;
      expect(outcome).not.toBeInstanceOf(LockBusyError);
      // The reply may have arrived in the extra time that a silent server gets beyond the wait.
      if (!(outcome instanceof Error)) await (outcome as Lock).release();
      await (await locks.acquire(key)).release();
    }
  }, 60_000);

  it("a server crash keeps a holder's lease, and tokens keep growing", async () => {
    const locks = await application();
    const lock = await locks.acquire('crash', { lease: 120_000 });
    await backend.server.crash();
    const other = await application();
    expect(await other.tryAcquire('crash')).toBeNull();
    lock.assertHeld();
    await lock.extend(120_000);
    expect(await lock.release()).toBe('released');
    await using next = await other.acquire('crash');
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken!);
  }, 120_000);

  it.each([
    ['an exclusive', 'renewal', {}],
    ['a limited', 'limited renewal', { limit: 2 }],
  ])('no renewal of %s lease shortens it on the server, however late it is executed', async (_, kind, share) => {
    const renewals: { sql: string; values: readonly unknown[] }[] = [];
    const observer: Observer = (sql, values) => {
      if (kindOf(sql) === kind) renewals.push({ sql, values });
      return undefined;
    };
    const locks = await application(await versionProvider(backend, { observer }));
    await using lock = await locks.acquire('late renewal', { lease: '1m', ...share });
    const expiresIn = async () => (await locks.admin.inspect('late renewal'))!.expiresIn;
    await lock.extend();
    await lock.extend('1h');
    const [late] = renewals;
    await backend.admin.query(late!.sql, [...late!.values]);
    expect(await expiresIn()).toBeGreaterThan(3_000_000);
    await lock.extend('1m');
    expect(lock.remaining()).toBeLessThanOrEqual(60_000);
    expect(await expiresIn()).toBeGreaterThan(3_000_000);
  });

  it('the table purges itself: one process per hour deletes only rows that have been unused for a week', async () => {
    // A start does not wait for its registration, which also purges the table.
    const registered = jest.spyOn(VersionLockBackend.prototype, 'register');
    const [first, second] = [await application(), await application()];
    await Promise.all(registered.mock.results.map(({ value }) => value as Promise<void>));
    registered.mockRestore();
    const register = (locks: LockManager) => locks.admin.backend(VersionLockBackend).register();
    const age = (days: number) =>
      backend.admin.query(
        `UPDATE ${TABLE} SET expires = expires - ${days * 86_400_000_000} WHERE name LIKE 'test#lease:clean:%' AND holder IS NULL`,
      );
    const rows = async () =>
      (await leaseRows(backend.admin, 'test')).map(({ name }) => name.split(':clean:')[1]).filter(Boolean);
    // A process that started earlier has purged the table within this hour.
    await backend.admin.query(`UPDATE ${TABLE} SET expires = 0, holder = NULL WHERE name = 'test#purge'`);
    const used = await first.acquire('clean:used');
    await used.release();
    await using held = await first.acquire('clean:held');
    await age(6);
    await register(first);
    expect((await rows()).sort()).toEqual(['held', 'used']);
    await age(2);
    await register(second);
    expect((await rows()).sort()).toEqual(['held', 'used']);
    await backend.admin.query(`UPDATE ${TABLE} SET expires = 0, holder = NULL WHERE name = 'test#purge'`);
    await Promise.all([register(first), register(second)]);
    expect(await rows()).toEqual(['held']);
    expect(held.isHeld()).toBe(true);
    await using again = await second.acquire('clean:used');
    expect(again.fencingToken).toBeGreaterThan(used.fencingToken!);
  });

  it('a purge deletes old, free rows, and never rows that are held, retained, or locked by a row lock', async () => {
    const provider = await versionProvider(backend);
    const locks = await application(provider);
    const rowLocks = await processes.start(await backend.provider(), { namespace: 'rows' });
    const rowHeld = await rowLocks.acquire('held');
    await (await rowLocks.acquire('free')).release();
    const held = await locks.acquire('purge:held', { lease: 600_000 });
    await (await locks.acquire('purge:parked', { minHold: 600_000 })).release();
    const limited = await locks.acquire('purge:limited', { limit: 2, lease: 600_000 });
    await (await locks.acquire('purge:limited', { limit: 2 })).release();
    const free = await locks.acquire('purge:free');
    await free.release();
    // As old as a row can be: a held or retained row ends in the future.
    await backend.admin.query(
      `UPDATE ${TABLE} SET expires = expires - 2000000 WHERE name LIKE 'test#lease:purge:free'`,
    );
    await backend.admin.query(`UPDATE ${TABLE} SET expires = 0 WHERE name = 'rows:free'`);
    const churning = await application();
    const purging = locks.admin.backend(VersionLockBackend);
    const over = new AbortController();
    const churn = (async () => {
      for (let last = 0n; !over.signal.aborted;) {
        await using lock = await churning.acquire('purge:churn', { lease: 60_000 });
        expect(lock.fencingToken).toBeGreaterThan(last);
        last = lock.fencingToken!;
        lock.assertHeld();
        await lock.extend();
      }
    })();
    for (const until = Date.now() + 1_300; Date.now() < until;) await purging.purge({ unusedFor: 1_000 });
    over.abort();
    await churn;
    const names = await backend.admin.query<{ name: string | Buffer }[]>(`SELECT name FROM ${TABLE}`);
    const left = names.map(({ name }) => name.toString());
    expect(left).toEqual(
      expect.arrayContaining(['rows:held', ...['held', 'limited', 'parked'].map((key) => `test#lease:purge:${key}`)]),
    );
    expect(left).not.toContain('test#lease:purge:free');
    expect(left).not.toContain('rows:free');
    expect(await rowHeld.release()).toBe('released');
    expect(await held.release()).toBe('released');
    expect(await limited.release()).toBe('released');
    await using again = await locks.acquire('purge:free');
    expect(again.fencingToken).toBeGreaterThan(free.fencingToken!);
  }, 60_000);

  it('the migration creates the table that the locks use, under the chosen name', async () => {
    class AppLocks1700000000000 extends LockTables1700000000000 {
      override name = 'AppLocks1700000000000';
      override table = 'app_locks';
    }
    const source = await backend.source({ migrations: [AppLocks1700000000000] }).initialize();
    await source.runMigrations();
    const locks = await application(new TypeOrmVersionLockProvider({ dataSource: source, table: 'app_locks' }));
    await (await locks.acquire('a')).release();
    await source.undoLastMigration();
    await expect(locks.acquire('a', { wait: 0 })).rejects.toBeInstanceOf(LockConfigError);
    await source.destroy();
  });

  it('leaves no connection and no open transaction, and needs no connection of the application', async () => {
    const source = await backend.source({ poolSize: 1 }).initialize();
    const locks = await application(new TypeOrmVersionLockProvider({ dataSource: source, synchronize: true }));
    await source.transaction(async (manager) => {
      await manager.query('SELECT 1');
      const held = await Promise.all(Array.from({ length: 20 }, (_, index) => locks.acquire(`pool:${index}`)));
      await Promise.all(held.map((lock) => lock.extend()));
      await Promise.all(held.map((lock) => lock.release()));
    });
    expect(await backend.untilTransactions(0)).toBe(0);
    await source.destroy();
  });
});
