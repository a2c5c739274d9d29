import { expect } from '@jest/globals';
import { once } from 'node:events';
import { DataSource, type QueryRunner } from 'typeorm';
import { LockConfigError } from '../../lib/api/errors.js';
import {
  entityManagerOf,
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { LockProcesses, SqlBackend } from './sql-backend.js';
import { leaseRows, versionProvider } from './version-backend.js';
import { hasMySql, type SqlServer, startMySqlOrMariaDb } from '../servers/sql-server.mjs';
import { itUnless } from '../unless.js';
import type { Connection, RowDataPacket } from 'mysql2';
import { type Connection as Admin, createConnection } from 'mysql2/promise';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import {
  SqlAdvisoryLockProvider,
  sqlClientOf,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { until } from '../until.js';

const processes = new LockProcesses();

// Settings that the server or the application applies to all its connections must not affect locks.
describe('settings of MySQL or MariaDB', () => {
  const backend = SqlBackend.forTests('mariadb');
  const LIMITS = ['idle_transaction_timeout', 'idle_readonly_transaction_timeout', 'idle_write_transaction_timeout'];

  /** Runs `work` on a server with these settings. Connections that already exist don't see them. */
  async function set(settings: Record<string, number>, work: () => Promise<void>): Promise<void> {
    const { admin } = backend;
    const names = Object.keys(settings);
    const [before] = await admin.query<Record<string, number>[]>(
      `SELECT ${names.map((name) => `@@GLOBAL.${name} AS ${name}`).join()}`,
    );
    const apply = (values: Record<string, number>) =>
      admin.query(`SET ${names.map((name) => `GLOBAL ${name} = ${values[name]!}`).join()}`);
    await apply(settings);
    await work().finally(() => apply(before!));
  }

  itUnless(hasMySql() ? 'MySQL has no idle transaction limit' : undefined)(
    'a limit for idle transactions ends other transactions, but no lock',
    async () => {
      await set(Object.fromEntries(LIMITS.map((name) => [name, 1])), async () => {
        // No heartbeat is due during the test.
        const locks = await processes.start(await backend.provider({ sessionGuard: '30s' }));
        await using lock = await locks.acquire('a');
        const rival = await backend.source().initialize();
        const runner: QueryRunner = rival.createQueryRunner();
        const connection = (await runner.connect()) as NodeJS.EventEmitter;
        const ended = once(connection, 'error');
        await runner.startTransaction();
        await runner.query('SELECT * FROM distributed_lock FOR UPDATE SKIP LOCKED');
        await ended;
        // The server has had time to end the lock's transaction as well, which was idle for longer.
        expect(lock.isHeld()).toBe(true);
        const [limits] = await entityManagerOf(lock).query<object[]>(
          `SELECT ${LIMITS.map((name) => `@@${name} AS ${name}`).join()}`,
        );
        expect(limits).toEqual(Object.fromEntries(LIMITS.map((name) => [name, expect.anything()])));
        expect(Object.values(limits!).map(Number)).toEqual([0, 0, 0]);
        await runner.release().catch(() => undefined);
        await rival.destroy().catch(() => undefined);
      });
    },
  );

  it('a lease and a row are committed even with autocommit off', async () => {
    await set({ autocommit: 0 }, async () => {
      const leases = await processes.start(await versionProvider(backend));
      await using lease = await leases.acquire('leased');
      const [row] = await leaseRows(backend.admin, 'test');
      expect(row).toMatchObject({ holder: lease.holder, token: lease.fencingToken });
      const rows = await processes.start(await backend.provider({ fencing: true }));
      await using lock = await rows.acquire('locked');
      expect(lock.isHeld()).toBe(true);
    });
  });

  it('a quote in a key is preserved where a backslash is plain text', async () => {
    const { admin } = backend;
    const [before] = await admin.query<{ mode: string }[]>('SELECT @@GLOBAL.sql_mode AS mode');
    await admin.query(`SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES'`);
    try {
      const locks = await processes.start(await versionProvider(backend));
      const key = `it's "quoted" \\ ', token = 7 -- `;
      await using lease = await locks.acquire(key);
      const listed: unknown[] = [];
      for await (const { key: each, fencingToken } of locks.admin.list({ prefix: "it's" }))
        listed.push([each, fencingToken]);
      expect(listed).toEqual([[key, lease.fencingToken]]);
      const rows = await processes.start(await backend.provider());
      await using lock = await rows.acquire('locked');
      const mode = await entityManagerOf(lock).query<object[]>('SELECT @@sql_mode AS mode, ? AS value', [key]);
      expect(mode).toEqual([{ mode: expect.stringMatching(/STRICT_TRANS_TABLES$/), value: key }]);
    } finally {
      await admin.query(`SET GLOBAL sql_mode = '${before!.mode}'`);
    }
  });
});

describe('a MySQL or MariaDB that rolls back the whole transaction when a lock wait times out', () => {
  const backend = SqlBackend.forTests('mariadb', ['--innodb-rollback-on-timeout=ON']);

  it('loses the lock in that transaction, and writes nothing after it', async () => {
    const source = await backend.source().initialize();
    await source.query('CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)');
    await source.query('INSERT INTO account (id, balance) VALUES (1, 0), (2, 0)');
    const ann = await processes.start(await backend.provider());
    const bob = await processes.start(await backend.provider());
    const rival = source.createQueryRunner();
    await rival.startTransaction();
    await rival.query('UPDATE account SET balance = 1 WHERE id = 1');
    const look = 'SELECT * FROM account WHERE id = 1 FOR UPDATE';

    const lock = await ann.acquire('own');
    const manager = entityManagerOf(lock);
    await manager.query('SET SESSION innodb_lock_wait_timeout = 1');
    await expect(manager.query(look)).rejects.toMatchObject({ errno: 1205 });
    expect(lock.isHeld()).toBe(false);
    await expect(manager.query('UPDATE account SET balance = 2 WHERE id = 2')).rejects.toThrow();
    await (await bob.acquire('own', { wait: 0 })).release();

    await rival.rollbackTransaction();
    await rival.release();
    expect(await source.query('SELECT balance FROM account')).toEqual([{ balance: 0 }, { balance: 0 }]);
    await source.destroy();
  });
});

describe('settings of Postgres', () => {
  const backend = SqlBackend.forTests('postgres');

  /** Returns the number of sessions that wait for a lock on the server. */
  async function waiting(): Promise<number> {
    const [row] = await backend.admin.query<{ n: string }[]>('SELECT count(*) AS n FROM pg_locks WHERE NOT granted');
    return Number(row!.n);
  }

  it.each([
    ['row', 'options', TypeOrmRowLockProvider],
    ['row', 'address', TypeOrmRowLockProvider],
    ['advisory', 'options', TypeOrmAdvisoryLockProvider],
  ])('a query_timeout ends no wait for a %s lock: set in the %s', async (_, place, Provider) => {
    const url = `${backend.server.url}?query_timeout=1000`;
    const dataSource =
      place === 'address'
        ? new DataSource({ type: 'postgres', url })
        : backend.source({ extra: { query_timeout: 1_000 } });
    const started = () => processes.start(new Provider({ dataSource, synchronize: true }));
    const [holding, asking] = [await started(), await started()];
    const held = await holding.acquire('a');
    const asked = asking.acquire('a');
    await until(async () => (await waiting()) === 1, 'the caller waits on the server');
    // The application's own statement, sent later, times out.
    await dataSource.initialize();
    await expect(dataSource.query('SELECT pg_sleep(3)')).rejects.toThrow(/timeout/);
    await dataSource.destroy();
    // Between two slices of the wait, no session waits.
    await until(async () => (await waiting()) === 1, 'the caller waits on the server');
    await held.release();
    expect(await (await asked).release()).toBe('released');
    await using next = await holding.acquire('a');
    expect(next.isHeld()).toBe(true);
  });

  it('a row that disappears on creation is refused immediately', async () => {
    const { admin } = backend;
    const locks = await processes.start(await backend.provider());
    await admin.query(`CREATE FUNCTION vanish() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`);
    await admin.query('CREATE TRIGGER vanish BEFORE INSERT ON distributed_lock FOR EACH ROW EXECUTE FUNCTION vanish()');
    try {
      await expect(locks.acquire('vanishing')).rejects.toThrow(/row-level security policy or a trigger/);
      await expect(locks.tryAcquire('vanishing')).rejects.toBeInstanceOf(LockConfigError);
    } finally {
      await admin.query('DROP TRIGGER vanish ON distributed_lock');
    }
    await (await locks.acquire('vanishing')).release();
  });
});

const BOTH = [
  '',
  'ANSI,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH,ALLOW_INVALID_DATES,NO_DIR_IN_CREATE',
  'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,NO_ZERO_DATE,NO_ZERO_IN_DATE',
  'STRICT_ALL_TABLES',
  'TRADITIONAL,ONLY_FULL_GROUP_BY,NO_AUTO_VALUE_ON_ZERO',
];
const OF_MARIADB = [
  'EMPTY_STRING_IS_NULL',
  'ORACLE',
  'ORACLE,EMPTY_STRING_IS_NULL',
  'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL',
  'SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL,MSSQL,DB2,MAXDB,POSTGRESQL',
];

describe('locks of MySQL or MariaDB work the same in every sql_mode of the server', () => {
  const processes = new LockProcesses();
  let server: SqlServer;
  let admin: Admin;

  beforeAll(async () => {
    server = await startMySqlOrMariaDb();
    admin = await createConnection(server.url);
  }, 60_000);
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  it.each(hasMySql() ? BOTH : [...BOTH, ...OF_MARIADB])('"%s"', async (mode) => {
    await admin.query('SET GLOBAL sql_mode = ?', [mode]);
    await admin.query('DROP TABLE IF EXISTS distributed_lock');
    const options = { url: server.url, synchronize: true, commandTimeout: '10s' };
    const pairOf = (provider: () => LockProvider) =>
      Promise.all([processes.start(provider()), processes.start(provider())]);
    const versions = await pairOf(() => new SqlVersionLockProvider(options));
    const rows = await pairOf(() => new SqlRowLockProvider({ ...options, fencing: true }));
    const names = await pairOf(() => new SqlAdvisoryLockProvider({ ...options, fencing: true }));
    for (const [locks, others] of [versions, rows, names]) await excludes(locks, others);
    await limits(...versions);
    await listsAndPurges(versions[0]);
    await shares(...rows);
    await keepsModeOfApplication(rows[0]);
  });

  async function excludes(locks: LockManager, others: LockManager): Promise<void> {
    const first = await locks.acquire('a');
    expect(await others.tryAcquire('a')).toBeNull();
    const waiting = others.acquire('a');
    expect(await first.release()).toBe('released');
    const second = await waiting;
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken!);
    expect(await second.release()).toBe('released');
  }

  async function limits(locks: LockManager, others: LockManager): Promise<void> {
    const terms = { limit: 2 };
    const held = [await locks.acquire('limited', terms), await others.acquire('limited', terms)];
    expect(await locks.tryAcquire('limited', terms)).toBeNull();
    expect(await held[0]!.release()).toBe('released');
    const again = await locks.acquire('limited', terms);
    await again.extend();
    expect(await again.release()).toBe('released');
    expect(await held[1]!.release()).toBe('released');
  }

  async function listsAndPurges(locks: LockManager): Promise<void> {
    const key = `it's "quoted" \\ é`;
    const lock = await locks.acquire(key);
    const listed: unknown[] = [];
    for await (const { key: each, fencingToken } of locks.admin.list()) listed.push([each, fencingToken]);
    expect(listed).toEqual([[key, lock.fencingToken]]);
    await admin.query(`UPDATE distributed_lock SET expires = 0 WHERE name LIKE 'test#lease:a'`);
    expect(await locks.admin.purge({ unusedFor: '10m' })).toBe(1);
    expect(await lock.release()).toBe('released');
  }

  async function shares(locks: LockManager, others: LockManager): Promise<void> {
    const readers = [await locks.acquire('a', { mode: 'shared' }), await others.acquire('a', { mode: 'shared' })];
    expect(await locks.tryAcquire('a')).toBeNull();
    for (const reader of readers) await reader.release();
    await until(async () => (await (await others.tryAcquire('a'))?.release()) === 'released', 'the readers have left');
  }

  /**
   * Statements of the application run in its own sql_mode without NO_BACKSLASH_ESCAPES, because mysql2 escapes with
   * backslashes.
   */
  async function keepsModeOfApplication(locks: LockManager): Promise<void> {
    const modesOf = async (client: Pick<Connection, 'promise'> | { promise: () => Admin }) => {
      const [[answer]] = await client.promise().query<RowDataPacket[]>('SELECT @@SESSION.sql_mode AS mode');
      return String(answer!['mode'])
        .split(',')
        .filter((each) => each !== 'NO_BACKSLASH_ESCAPES' && each !== '');
    };
    const own = await createConnection(server.url);
    const modes = await modesOf({ promise: () => own });
    await own.end();
    await using lock = await locks.acquire('mode');
    const client = sqlClientOf<Connection>(lock);
    expect(await modesOf(client)).toEqual(modes);
    const [[answer]] = await client.promise().query<RowDataPacket[]>('SELECT ? AS value', [`\\' OR 1`]);
    expect(answer).toEqual({ value: `\\' OR 1` });
  }
});
