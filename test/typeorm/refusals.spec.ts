import { DataSource } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockConfigError } from '../../lib/api/errors.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  type TypeOrmRowLockProviderOptions,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { createTableSql } from '../../lib/providers/sql/table/lock-schema.js';
import { SqlBackend, type SqlType } from './sql-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

it('another driver of MySQL than mysql2 is refused at the start', async () => {
  const driver = { createConnection: () => undefined, createPool: () => undefined, createPoolCluster: () => undefined };
  const dataSource = new DataSource({ type: 'mysql', url: 'mysql://127.0.0.1:1/app', driver });
  const locks = new LockManager({ providers: { sql: new TypeOrmRowLockProvider({ dataSource }) } });
  const start = locks.start();
  await expect(start).rejects.toBeInstanceOf(LockConfigError);
  await expect(start).rejects.toThrow('need the mysql2 driver, but the DataSource uses another one');
});

// What a server refuses it would refuse again. The callers here would wait for an hour.
describe.each(databases)('refusals of %s fail immediately and say what to do', (type) => {
  const family = type === 'mariadb' ? 'mysql' : 'postgres';
  let backend: SqlBackend;
  let source: DataSource;
  const managers: LockManager[] = [];
  const run = (sql: string) => backend.admin.query(sql);

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
    await run(type === 'mariadb' ? `CREATE USER locker@'%' IDENTIFIED BY 'secret'` : `CREATE ROLE locker LOGIN`);
    if (type === 'mariadb') {
      // Everybody may do everything in a database of this name.
      await run('DELETE FROM mysql.db');
      await run('FLUSH PRIVILEGES');
      await run(`CREATE USER writer@'%' IDENTIFIED BY 'secret'`);
      await run(`GRANT SELECT, INSERT, UPDATE ON test.* TO writer`);
    } else await run('REVOKE CREATE ON SCHEMA public FROM PUBLIC');
    const database = type === 'postgres' ? { database: 'postgres' } : {};
    source = backend.source({ username: 'locker', password: 'secret', ...database });
  }, 60_000);
  afterEach(() => Promise.all(managers.splice(0).map((manager) => manager.stop())));
  afterAll(() => backend.stop());

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

  function managerOf(provider: ReturnType<(typeof kinds)[keyof typeof kinds]>): LockManager {
    const locks = new LockManager({ providers: { sql: provider }, defaults: { wait: '1h' }, shutdownGrace: 0 });
    managers.push(locks);
    return locks;
  }

  async function refused(work: Promise<unknown>, message: RegExp): Promise<void> {
    await expect(work).rejects.toBeInstanceOf(LockConfigError);
    await expect(work).rejects.toThrow(message);
  }

  /** Makes a table with which the account may do what is named. */
  async function table(name: string, privileges: string): Promise<string> {
    await run(createTableSql(family, name));
    await run(`GRANT ${privileges} ON ${name} TO locker`);
    return name;
  }

  it.each(each)('%s: a privilege that is missing at the start', async (kind, make) => {
    const [first, second] = [await table(`${kind}_1`, 'SELECT, UPDATE'), await table(`${kind}_2`, 'SELECT, INSERT')];
    await refused(managerOf(make({ table: first })).start(), type === 'mariadb' ? /INSERT command denied/ : /INSERT/);
    await refused(managerOf(make({ table: second })).start(), type === 'mariadb' ? /UPDATE command denied/ : /UPDATE/);
  });

  it.each(each)('%s: a privilege that is taken away later', async (kind, make) => {
    const name = await table(`${kind}_3`, 'SELECT, INSERT, UPDATE');
    const locks = managerOf(make({ table: name }));
    await locks.start();
    await (await locks.acquire('before')).release();
    // To lock a row, MariaDB asks for SELECT only.
    const privilege = kind === 'row' && type === 'mariadb' ? 'SELECT' : 'UPDATE';
    await run(`REVOKE ${privilege} ON ${name} FROM locker`);
    await refused(locks.acquire('before'), new RegExp(`denied.*${privilege}`));
    await run(`GRANT ${privilege} ON ${name} TO locker`);
    await (await locks.acquire('before')).release();
  });

  it.each(each)('%s: `synchronize` without CREATE', async (kind, make) => {
    const account =
      type === 'mariadb' ? { username: 'writer', password: 'secret' } : { username: 'locker', database: 'postgres' };
    const dataSource = backend.source(account);
    await refused(managerOf(make({ dataSource, table: `${kind}_4`, synchronize: true })).start(), /CREATE.*migration/);
  });

  it.each(each)('%s: a table that is another one', async (kind, make) => {
    await run(`CREATE TABLE ${kind}_5 (id INT PRIMARY KEY, name VARCHAR(9))`);
    await run(`GRANT SELECT, INSERT, UPDATE ON ${kind}_5 TO locker`);
    await refused(managerOf(make({ table: `${kind}_5` })).start(), /column|privilege/i);
  });

  it('a table without its primary key, or of a storage engine without row locks', async () => {
    const name = await table('keyless', 'SELECT, INSERT, UPDATE');
    await run(
      type === 'mariadb' ? `ALTER TABLE ${name} DROP PRIMARY KEY` : `ALTER TABLE ${name} DROP CONSTRAINT ${name}_pkey`,
    );
    await refused(managerOf(kinds.row({ table: name })).start(), /primary key/);
    if (type === 'postgres') return;
    const myisam = await table('myisam', 'SELECT, INSERT, UPDATE');
    await run(`ALTER TABLE ${myisam} ENGINE = MyISAM`);
    await refused(managerOf(kinds.row({ table: myisam })).start(), /InnoDB/);
  });

  it('an account that does not exist', async () => {
    const unknown = backend.source({ username: 'nobody', password: 'wrong' });
    const starting = managerOf(kinds.row({ dataSource: unknown })).start();
    await refused(starting, /nobody.*Check the username and password/);
    // Privileges would not help.
    await expect(starting).rejects.not.toThrow(/needs SELECT/);
    await expect(starting).rejects.toMatchObject({ refused: true });
  });

  if (type === 'postgres')
    it('row-level security', async () => {
      const name = await table('secured', 'SELECT, INSERT, UPDATE');
      await run(`ALTER TABLE ${name} ENABLE ROW LEVEL SECURITY`);
      await refused(managerOf(kinds.row({ table: name })).start(), /row-level security/);
      await run(`CREATE POLICY writing ON ${name} FOR INSERT WITH CHECK (true)`);
      await refused(managerOf(kinds.row({ table: name })).start(), /row-level security/);
      await run(`CREATE POLICY reading ON ${name} USING (true)`);
      const locks = managerOf(kinds.row({ table: name }));
      await locks.start();
      await (await locks.acquire('seen')).release();
      await run(`DROP POLICY reading ON ${name}`);
      await refused(locks.acquire('hidden'), /row-level security/);
      await run(`DROP POLICY writing ON ${name}`);
      await refused(locks.acquire('no policy'), /row-level security/);
      await run(`CREATE POLICY writing ON ${name} FOR INSERT WITH CHECK (true)`);
      await run(`CREATE POLICY reading ON ${name} USING (true)`);
      await (await locks.acquire('hidden')).release();
    });

  if (type === 'mariadb')
    it('a server that becomes read-only, also for an account that may write there', async () => {
      const root = { dataSource: backend.source(), synchronize: true };
      const [row, advisory] = [kinds.row(root), kinds.advisory({ ...root, fencing: false })];
      const [rows, names] = [managerOf(row), managerOf(advisory)];
      await Promise.all([rows.start(), names.start()]);
      const held = await rows.acquire('held');
      const [name, waits] = [await names.acquire('name'), managerOf(kinds.advisory({ ...root, fencing: false }))];
      await waits.start();
      const isWaiting = new Promise((resolve) => void waits.events.on('waiting', resolve));
      const waiter = waits.acquire('name');
      await isWaiting;
      for (const locks of [rows, names]) await (await locks.acquire('free')).release();
      await run('SET GLOBAL read_only = 1');
      await refused(rows.acquire('free'), /read-only/);
      await refused(rows.acquire('free', { mode: 'shared' }), /read-only/);
      await refused(names.acquire('free'), /read-only/);
      // A new connection.
      await refused(Promise.all(['a', 'b', 'c'].map((key) => rows.acquire(key))), /read-only/);
      expect([held.isHeld(), name.isHeld()]).toEqual([false, false]);
      // It was queued before.
      await refused(waiter, /read-only/);
      await run('SET GLOBAL read_only = 0');
      for (const locks of [rows, names]) await (await locks.acquire('free')).release();
    });
});
