import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import { LockConfigError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import {
  SqlAdvisoryLockProvider,
  sqlClientOf,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { LockProcesses, type SqlType } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

const KINDS = [SqlRowLockProvider, SqlAdvisoryLockProvider];

/** Runs statements of an operator, who may still write. */
type Admin = { query(sql: string): Promise<unknown>; end(): Promise<unknown> };

const DATABASES = {
  mariadb: {
    start: () => startMySqlOrMariaDb(),
    connect: (url: string): Promise<Admin> => createConnection(url.replace('mariadb:', 'mysql:')),
    stopWrites: (admin: Admin) => admin.query('SET GLOBAL read_only = 1'),
    allowWrites: (admin: Admin) => admin.query('SET GLOBAL read_only = 0'),
    sleep: 'SELECT SLEEP(0.05)',
  },
  postgres: {
    start: () => startPostgres(),
    async connect(url: string): Promise<Admin> {
      const client = new pg.Client(url);
      await client.connect();
      await client.query('SET default_transaction_read_only = off');
      return client;
    },
    async stopWrites(admin: Admin) {
      await admin.query('ALTER SYSTEM SET default_transaction_read_only = on');
      await admin.query('SELECT pg_reload_conf()');
    },
    async allowWrites(admin: Admin, url: string) {
      await admin.query('ALTER SYSTEM RESET default_transaction_read_only');
      await admin.query('SELECT pg_reload_conf()');
      const isSeen = async () => {
        const client = new pg.Client(url);
        await client.connect();
        const { rows } = await client.query<{ value: string }>(
          `SELECT current_setting('default_transaction_read_only') AS value`,
        );
        await client.end();
        return rows[0]!.value === 'off';
      };
      await until(isSeen, 'new sessions may write');
    },
    sleep: 'SELECT pg_sleep(0.05)',
  },
};

/** Sends a statement in the lock's transaction. */
function send(type: SqlType, lock: Lock, sql: string): Promise<unknown> {
  return type === 'postgres'
    ? sqlClientOf<pg.Client>(lock).query(sql)
    : sqlClientOf<{ promise(): { query(sql: string): Promise<unknown> } }>(lock).promise().query(sql);
}

/**
 * Starts a process of version locks with one connection, which is reused: a new connection would be checked before it
 * locks.
 */
async function versionLocks(processes: LockProcesses, admin: Admin, url: string): Promise<LockManager> {
  // The first process in an hour opens another connection to purge.
  const first = await processes.start(new SqlVersionLockProvider({ url, synchronize: true }));
  const holder = `SELECT 'claimed' AS state FROM distributed_lock WHERE name = 'test#purge' AND holder IS NOT NULL`;
  await until(async () => JSON.stringify(await admin.query(holder)).includes('"claimed"'), 'the purge is claimed');
  await first.stop();
  return processes.start(new SqlVersionLockProvider({ url, maxConnections: 1 }));
}

/** Returns the messages of an error and its causes. */
function messagesOf(error: unknown): string {
  return error instanceof Error ? `${error.message} < ${messagesOf(error.cause)}` : '';
}

describe.each<SqlType>(['mariadb', 'postgres'])('a %s that becomes read-only', (type) => {
  const { start, connect, stopWrites, allowWrites, sleep } = DATABASES[type];
  const processes = new LockProcesses();
  let server: SqlServer;
  let admin: Admin;

  beforeAll(async () => {
    server = await start();
    admin = await connect(server.url);
  }, 60_000);
  beforeEach(() => allowWrites(admin, server.url));
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  const started = (Provider: (typeof KINDS)[number], options: object = {}): Promise<LockManager> =>
    processes.start(new Provider({ url: server.url, synchronize: true, sessionGuard: '5s', ...options }));
  /** Checks that the holder is notified long before the guard would end its lock. */
  async function lost(lock: Lock): Promise<void> {
    await until(() => !lock.isHeld(), 'the lock is lost');
    expect(messagesOf(lock.signal.reason)).toMatch(/read-only/);
  }

  /** Postgres sessions see the setting a moment after it changes. */
  async function refused(locks: LockManager): Promise<void> {
    const attempt = async () => {
      const outcome = await locks.acquire('free').catch((error: unknown) => error);
      if (outcome instanceof LockConfigError) return true;
      await (outcome as Lock).release();
      return false;
    };
    await until(attempt, 'a lock is refused');
  }

  it.each(KINDS)('%p: the holder loses its lock by the next heartbeat', async (Provider) => {
    const locks = await started(Provider);
    const held = await locks.acquire('held');
    await stopWrites(admin);
    await lost(held);
  });

  it('a version lock is neither granted nor renewed, even by an account that may still write', async () => {
    const locks = await versionLocks(processes, admin, server.url);
    const held = await locks.acquire('held');
    await stopWrites(admin);
    await refused(locks);
    await expect(held.extend()).rejects.toThrow();
    await allowWrites(admin, server.url);
    await (await locks.acquire('free')).release();
    expect(await held.release()).toBe('released');
  });

  it.each(KINDS)('%p: refuses new locks, and the locks that the process holds there are lost', async (Provider) => {
    // No heartbeat is due during the test.
    const locks = await started(Provider, { sessionGuard: '10m' });
    const held = await locks.acquire('held');
    // The session is reused: a new connection would be checked before it locks.
    await (await locks.acquire('free')).release();
    await stopWrites(admin);
    await refused(locks);
    await lost(held);
    await allowWrites(admin, server.url);
    await (await locks.acquire('free')).release();
  });

  it.each(KINDS)('%p: refuses a waiter the lock it waited for', async (Provider) => {
    const [holder, waiter] = await Promise.all(
      ['10m', '10m'].map((sessionGuard) => started(Provider, { sessionGuard })),
    );
    const held = await holder!.acquire('held');
    const waits = new Promise((resolve) => waiter!.events.once('waiting', resolve));
    const waiting = waiter!.acquire('held').catch((error: unknown) => error);
    await waits;
    await stopWrites(admin);
    await refused(holder!);
    await held.release();
    expect(await waiting).toBeInstanceOf(LockConfigError);
  });

  it('a row lock is lost while its task sends one statement after another', async () => {
    const locks = await started(SqlRowLockProvider);
    const held = await locks.acquire('busy');
    const task = (async () => {
      while (held.isHeld()) await send(type, held, sleep);
    })().catch(() => undefined);
    await stopWrites(admin);
    await lost(held);
    await task;
  });

  it('allowUnsafeTopology keeps locking', async () => {
    const locks = await started(SqlAdvisoryLockProvider, { allowUnsafeTopology: true });
    const held = await locks.acquire('held');
    await stopWrites(admin);
    await (await locks.acquire('free')).release();
    // A heartbeat extends the lock.
    let least = held.remaining();
    await until(() => {
      const isExtended = held.remaining() > least + 500;
      least = Math.min(least, held.remaining());
      return isExtended;
    }, 'the lock is renewed');
    held.assertHeld();
    await held.release();
  });

  if (type === 'postgres') {
    it.each([
      ['the task has made its own transactions writable', 'SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE'],
      ['a statement has failed and aborted the transaction', 'SELECT 1 / 0'],
    ])('a row lock is lost even if %s', async (_, sql) => {
      const locks = await started(SqlRowLockProvider);
      const held = await locks.acquire('held');
      await send(type, held, sql).catch(() => undefined);
      await stopWrites(admin);
      await lost(held);
    });

    it.each(['SET TRANSACTION READ ONLY', 'SET default_transaction_read_only = on'])(
      'a task that sets %s for itself keeps its lock',
      async (sql) => {
        const locks = await started(SqlRowLockProvider);
        const held = await locks.acquire('held');
        await send(type, held, sql);
        const beats = `SELECT 1 FROM pg_stat_activity WHERE query LIKE '%reset_val%' AND pid <> pg_backend_pid()`;
        await until(async () => ((await admin.query(beats)) as pg.QueryResult).rows.length > 0, 'a heartbeat was sent');
        held.assertHeld();
        expect(await held.release()).toBe('released');
      },
    );
  }
});

describe.each<SqlType>(['mariadb', 'postgres'])('an address that switches to another %s', (type) => {
  const { start, connect, stopWrites, allowWrites } = DATABASES[type];
  const processes = new LockProcesses();
  const servers: SqlServer[] = [];
  let wire: TcpProxy;

  beforeAll(async () => {
    servers.push(...(await Promise.all([start(), start()])));
    wire = await startTcpProxy(servers[0]!.port);
  }, 60_000);
  afterAll(async () => {
    await wire.close();
    await Promise.all(servers.map((server) => server.stop()));
  });

  it.each(KINDS)('%p: a process that reaches the second server loses its locks on the first', async (Provider) => {
    const [first, second] = servers;
    wire.leadTo(first!.port);
    const at = (url: string) => processes.start(new Provider({ url, synchronize: true, sessionGuard: '10m' }));
    const locks = await at(first!.url.replace(`:${first!.port}`, `:${wire.port}`));
    const [others] = await Promise.all([at(first!.url), at(second!.url)]);
    const held = await locks.acquire('held');
    await others.acquire('a');
    wire.leadTo(second!.port);
    // A waiter needs a connection of its own, and the key is free on the second server.
    const free = await locks.acquire('a');
    await until(() => !held.isHeld(), 'the lock is lost');
    expect(messagesOf(held.signal.reason)).toMatch(/two connections reached different servers/);
    await free.release();
  });

  it('a version lock that the first server refuses because it is read-only is granted by the other server', async () => {
    const [first, second] = servers;
    wire.leadTo(first!.port);
    const admin = await connect(first!.url);
    const locks = await versionLocks(processes, admin, first!.url.replace(`:${first!.port}`, `:${wire.port}`));
    const others = await processes.start(new SqlVersionLockProvider({ url: second!.url, synchronize: true }));
    await (await locks.acquire('a')).release();
    await stopWrites(admin);
    wire.leadTo(second!.port);
    const isGrantedThere = async () => {
      const lock = await locks.acquire('a').catch(() => undefined);
      // The first server may still grant the lock, because a server switches to read-only a moment after the command.
      const another = await others.tryAcquire('a');
      await Promise.all([lock?.release(), another?.release()]);
      return lock !== undefined && another === null;
    };
    await until(isGrantedThere, 'the other server has granted the lock');
    await allowWrites(admin, first!.url);
    await admin.end();
  });
});
