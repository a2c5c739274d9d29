import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { DataSource } from 'typeorm';
import { silentLogger } from '../../lib/api/logger.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  type TypeOrmRowLockProviderOptions,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { createTableSql } from '../../lib/providers/sql/table/lock-schema.js';
import { SqlBackend as SqlLockBackend } from '../../lib/providers/sql/sql-backend.js';
import { casStoreOf, LockProcesses, SqlBackend, type SqlType } from './sql-backend.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockConfigError } from '../../lib/api/errors.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];
const LOCKS = 'distributed_lock';

const familyOf = (type: SqlType) => (type === 'mariadb' ? 'mysql' : 'postgres');

/** Creates an account with only the privileges it is granted, and returns the DataSource of its application. */
async function makeLocker(backend: SqlBackend): Promise<DataSource> {
  const statements =
    backend.type === 'postgres'
      ? ['CREATE ROLE locker LOGIN', 'REVOKE CREATE ON SCHEMA public FROM PUBLIC']
      : // In a database named `test`, every account may do everything.
        [`CREATE USER locker@'%' IDENTIFIED BY 'secret'`, 'DELETE FROM mysql.db', 'FLUSH PRIVILEGES'];
  for (const sql of statements) await backend.admin.query(sql);
  return backend.source({ username: 'locker', password: 'secret' });
}

describe.each(databases)('a user of %s with only the documented privileges', (type) => {
  const backend = SqlBackend.forTests(type);
  const processes = new LockProcesses();
  let source: DataSource;

  beforeAll(async () => {
    await backend.admin.query(createTableSql(familyOf(type), LOCKS));
    source = await makeLocker(backend);
    await backend.admin.query(`GRANT SELECT, INSERT, UPDATE ON ${LOCKS} TO locker`);
  });
  // A slow server must not cost a session.
  const given = () => ({ dataSource: source, commandTimeout: '10s' });

  it.each([
    ['row', () => new TypeOrmRowLockProvider({ ...given(), fencing: true })],
    ['version', () => new TypeOrmVersionLockProvider(given())],
    ['advisory', () => new TypeOrmAdvisoryLockProvider({ ...given(), fencing: true })],
  ] as const)('acquires %s locks, waits, ends waits, writes values and serves two applications', async (_, make) => {
    const provider = make();
    const [ann, bob] = await Promise.all([processes.start(provider), processes.start(provider)]);
    const held = await ann.acquire('k');
    expect(await bob.tryAcquire('k')).toBeNull();
    expect(await bob.tryAcquire('k', { wait: 100 })).toBeNull();
    const next = bob.acquire('k', { wait: '1m' });
    expect(await held.release()).toBe('released');
    const lock = await next;
    expect(lock.fencingToken).toBeGreaterThan(held.fencingToken!);
    await lock.extend();
    expect(await lock.release()).toBe('released');
    const store = casStoreOf(ann);
    const known = await store.compareAndSet('a', null, 'a');
    expect(await store.compareAndSet('a', known, 'b')).toBe('b');
    const { records } = ann.admin.backend(SqlLockBackend);
    const { value } = await records.replace('a', null, 'a');
    expect((await records.replace('a', value, 'b')).value).toBe('b');
  });

  it('is refused a record that the account may not write, until it may', async () => {
    const locks = await processes.start(new TypeOrmVersionLockProvider(given()));
    const { records } = locks.admin.backend(SqlLockBackend);
    expect((await records.replace('refused', null, 'a')).value).toBe('a');
    await backend.admin.query(`REVOKE UPDATE ON ${LOCKS} FROM locker`);
    const refused = records.replace('refused', 'a', 'b');
    await expect(refused).rejects.toMatchObject({ code: 'LOCK_CONFIG', refused: true });
    await expect(refused).rejects.toThrow(
      /^Record "refused" of provider "sql" is not available\. The database rejected it/,
    );
    await backend.admin.query(`GRANT UPDATE ON ${LOCKS} TO locker`);
    expect((await records.replace('refused', 'a', 'b')).value).toBe('b');
  });

  it('causes one warning if the table should purge itself and DELETE is missing', async () => {
    const warnings: string[] = [];
    const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
    const locks = await processes.start(new TypeOrmVersionLockProvider(given()), { namespace: 'unclean', logger });
    await (await locks.acquire('old')).release();
    for (let hour = 0; hour < 2; hour += 1) {
      await backend.admin.query(`UPDATE ${LOCKS} SET expires = 1, holder = NULL`);
      await locks.admin.backend(VersionLockBackend).register();
    }
    expect(warnings).toEqual([expect.stringMatching(/Grant DELETE on its table\./)]);
  });

  it.each([
    ['row', () => new TypeOrmRowLockProvider(given())],
    ['version', () => new TypeOrmVersionLockProvider(given())],
  ] as const)('needs DELETE to purge rows of %s locks', async (_, make) => {
    const locks = await processes.start(make());
    await (await locks.acquire('old')).release();
    await backend.admin.query(`UPDATE ${LOCKS} SET expires = 1`);
    await expect(locks.admin.purge({ unusedFor: '1s' })).rejects.toThrow(/denied/);
    await backend.admin.query(`GRANT DELETE ON ${LOCKS} TO locker`);
    await locks.admin.purge({ unusedFor: '1s' });
    // The hourly purge may have been first.
    expect(await backend.admin.query(`SELECT name FROM ${LOCKS} WHERE name LIKE '%:old'`)).toEqual([]);
    await backend.admin.query(`REVOKE DELETE ON ${LOCKS} FROM locker`);
  });
});

it('a MySQL driver other than mysql2 fails the start', async () => {
  const driver = { createConnection: () => undefined, createPool: () => undefined, createPoolCluster: () => undefined };
  const dataSource = new DataSource({ type: 'mysql', url: 'mysql://127.0.0.1:1/app', driver });
  const locks = new LockManager({ providers: { sql: new TypeOrmRowLockProvider({ dataSource }) } });
  const start = locks.start();
  await expect(start).rejects.toBeInstanceOf(LockConfigError);
  await expect(start).rejects.toThrow('need the mysql2 driver, but the DataSource uses another one');
});

// A server that refuses a statement would refuse it again. Without an immediate error, these callers would wait for an
// hour.
describe.each(databases)('refusals on %s fail immediately and say what to do', (type) => {
  const backend = SqlBackend.forTests(type);
  const processes = new LockProcesses();
  let source: DataSource;
  const run = (sql: string) => backend.admin.query(sql);

  beforeAll(async () => {
    source = await makeLocker(backend);
    if (type === 'postgres') return;
    await run(`CREATE USER writer@'%' IDENTIFIED BY 'secret'`);
    await run(`GRANT SELECT, INSERT, UPDATE ON test.* TO writer`);
  });

  const kinds = {
    row: (options: Partial<TypeOrmRowLockProviderOptions> = {}) =>
      new TypeOrmRowLockProvider({ dataSource: source, commandTimeout: '10s', ...options }),
    version: ({
      dataSource = source,
      table = 'distributed_lock',
      synchronize,
    }: Partial<TypeOrmRowLockProviderOptions> = {}) =>
      new TypeOrmVersionLockProvider({ dataSource, commandTimeout: '10s', table, synchronize }),
    advisory: (options: Partial<TypeOrmRowLockProviderOptions> = {}) =>
      new TypeOrmAdvisoryLockProvider({ dataSource: source, commandTimeout: '10s', fencing: true, ...options }),
  };
  const each = Object.entries(kinds);

  const start = (provider: LockProvider) => processes.start(provider, { defaults: { wait: '1h' } });

  async function refused(work: Promise<unknown>, message: RegExp): Promise<void> {
    await expect(work).rejects.toBeInstanceOf(LockConfigError);
    await expect(work).rejects.toThrow(message);
  }

  /** Creates a table on which the account has these privileges. */
  async function table(name: string, privileges: string): Promise<string> {
    await run(createTableSql(familyOf(type), name));
    await run(`GRANT ${privileges} ON ${name} TO locker`);
    return name;
  }

  it.each(each)('%s: a missing privilege fails the start', async (kind, make) => {
    const [first, second] = [await table(`${kind}_1`, 'SELECT, UPDATE'), await table(`${kind}_2`, 'SELECT, INSERT')];
    await refused(start(make({ table: first })), type === 'mariadb' ? /INSERT command denied/ : /INSERT/);
    await refused(start(make({ table: second })), type === 'mariadb' ? /UPDATE command denied/ : /UPDATE/);
  });

  it.each(each)('%s: a privilege that is revoked later fails the next lock', async (kind, make) => {
    const name = await table(`${kind}_3`, 'SELECT, INSERT, UPDATE');
    const locks = await start(make({ table: name }));
    await (await locks.acquire('before')).release();
    // MariaDB needs only SELECT to lock a row.
    const privilege = kind === 'row' && type === 'mariadb' ? 'SELECT' : 'UPDATE';
    await run(`REVOKE ${privilege} ON ${name} FROM locker`);
    await refused(locks.acquire('before'), new RegExp(`denied.*${privilege}`));
    await run(`GRANT ${privilege} ON ${name} TO locker`);
    await (await locks.acquire('before')).release();
  });

  it.each(each)('%s: `synchronize` without CREATE fails the start', async (kind, make) => {
    const account =
      type === 'mariadb' ? { username: 'writer', password: 'secret' } : { username: 'locker', database: 'postgres' };
    const dataSource = backend.source(account);
    await refused(start(make({ dataSource, table: `${kind}_4`, synchronize: true })), /CREATE.*migration/);
  });

  it.each(each)('%s: a table with other columns fails the start', async (kind, make) => {
    await run(`CREATE TABLE ${kind}_5 (id INT PRIMARY KEY, name VARCHAR(9))`);
    await run(`GRANT SELECT, INSERT, UPDATE ON ${kind}_5 TO locker`);
    await refused(start(make({ table: `${kind}_5` })), /column|privilege/i);
  });

  it('a table without its primary key, or with a storage engine without row locks, fails the start', async () => {
    const name = await table('keyless', 'SELECT, INSERT, UPDATE');
    await run(
      type === 'mariadb' ? `ALTER TABLE ${name} DROP PRIMARY KEY` : `ALTER TABLE ${name} DROP CONSTRAINT ${name}_pkey`,
    );
    await refused(start(kinds.row({ table: name })), /primary key/);
    if (type === 'postgres') return;
    const myisam = await table('myisam', 'SELECT, INSERT, UPDATE');
    await run(`ALTER TABLE ${myisam} ENGINE = MyISAM`);
    await refused(start(kinds.row({ table: myisam })), /InnoDB/);
  });

  it('an account that does not exist fails the start', async () => {
    const unknown = backend.source({ username: 'nobody', password: 'wrong' });
    const starting = start(kinds.row({ dataSource: unknown }));
    await refused(starting, /nobody.*Check the username and password/);
    // Privileges would not help.
    await expect(starting).rejects.not.toThrow(/needs SELECT/);
    await expect(starting).rejects.toMatchObject({ refused: true });
  });

  if (type === 'postgres')
    it('row-level security fails the start or the lock', async () => {
      const name = await table('secured', 'SELECT, INSERT, UPDATE');
      await run(`ALTER TABLE ${name} ENABLE ROW LEVEL SECURITY`);
      await refused(start(kinds.row({ table: name })), /row-level security/);
      await run(`CREATE POLICY writing ON ${name} FOR INSERT WITH CHECK (true)`);
      await refused(start(kinds.row({ table: name })), /row-level security/);
      await run(`CREATE POLICY reading ON ${name} USING (true)`);
      const locks = await start(kinds.row({ table: name }));
      await (await locks.acquire('seen')).release();
      await run(`DROP POLICY reading ON ${name}`);
      await refused(locks.acquire('hidden'), /row-level security/);
      await run(`DROP POLICY writing ON ${name}`);
      await refused(locks.acquire('no policy'), /row-level security/);
      await run(`CREATE POLICY writing ON ${name} FOR INSERT WITH CHECK (true)`);
      await run(`CREATE POLICY reading ON ${name} USING (true)`);
      await (await locks.acquire('hidden')).release();
    });

  if (type === 'postgres')
    // Some operators revoke such functions from PUBLIC.
    it('an advisory lock function that the account may not call fails the start', async () => {
      await run('REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) FROM PUBLIC');
      const denied = /permission denied for function pg_try_advisory_lock/;
      await refused(start(kinds.advisory({ fencing: false })), denied);
      await run('GRANT EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) TO PUBLIC');
    });

  if (type === 'mariadb')
    it('a server that becomes read-only refuses locks, even for an account that may still write', async () => {
      const root = { dataSource: backend.source(), synchronize: true };
      const [row, advisory] = [kinds.row(root), kinds.advisory({ ...root, fencing: false })];
      const [rows, names] = await Promise.all([start(row), start(advisory)]);
      const held = await rows.acquire('held');
      const name = await names.acquire('name');
      const waits = await start(kinds.advisory({ ...root, fencing: false }));
      const isWaiting = new Promise((resolve) => void waits.events.on('waiting', resolve));
      const waiter = waits.acquire('name');
      await isWaiting;
      for (const locks of [rows, names]) await (await locks.acquire('free')).release();
      await run('SET GLOBAL read_only = 1');
      await refused(rows.acquire('free'), /read-only/);
      await refused(rows.acquire('free', { mode: 'shared' }), /read-only/);
      await refused(names.acquire('free'), /read-only/);
      // Opens a new connection.
      await refused(Promise.all(['a', 'b', 'c'].map((key) => rows.acquire(key))), /read-only/);
      expect([held.isHeld(), name.isHeld()]).toEqual([false, false]);
      // The waiter was queued before.
      await refused(waiter, /read-only/);
      await run('SET GLOBAL read_only = 0');
      for (const locks of [rows, names]) await (await locks.acquire('free')).release();
    });
});
