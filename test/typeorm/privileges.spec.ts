import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import type { DataSource } from 'typeorm';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { createTableSql } from '../../lib/providers/sql/table/lock-schema.js';
import { SqlBackend as SqlLockBackend } from '../../lib/providers/sql/sql-backend.js';
import { casStoreOf, SqlBackend, type SqlType } from './sql-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];
const LOCKS = 'distributed_lock';

describe.each(databases)('a user of %s with the privileges that the docs name', (type) => {
  let backend: SqlBackend;
  let source: DataSource;
  const managers: LockManager[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
    const family = type === 'mariadb' ? 'mysql' : 'postgres';
    await backend.admin.query(createTableSql(family, LOCKS));
    await backend.admin.query(
      type === 'mariadb' ? `CREATE USER locker@'%' IDENTIFIED BY 'secret'` : `CREATE ROLE locker LOGIN`,
    );
    if (type === 'mariadb') {
      // Everybody may do everything in a database of this name.
      await backend.admin.query('DELETE FROM mysql.db');
      await backend.admin.query('FLUSH PRIVILEGES');
    }
    await backend.admin.query(`GRANT SELECT, INSERT, UPDATE ON ${LOCKS} TO locker`);
    source = backend.source({
      username: 'locker',
      password: 'secret',
      ...(type === 'postgres' && { database: 'postgres' }),
    });
  }, 60_000);
  afterEach(() => Promise.all(managers.splice(0).map((manager) => manager.stop())));
  afterAll(() => backend.stop());
  // A server that is slow to answer must not cost a session.
  const given = () => ({ dataSource: source, commandTimeout: '10s' });

  it.each([
    ['row', () => new TypeOrmRowLockProvider({ ...given(), fencing: true })],
    ['version', () => new TypeOrmVersionLockProvider(given())],
    ['advisory', () => new TypeOrmAdvisoryLockProvider({ ...given(), fencing: true })],
  ] as const)('has locks by %s, waits, ends waits, writes values and serves two applications', async (_, make) => {
    const provider = make();
    const [ann, bob] = [1, 2].map(() => {
      const locks = new LockManager({ providers: { sql: provider }, shutdownGrace: 0 });
      managers.push(locks);
      return locks;
    }) as [LockManager, LockManager];
    await Promise.all([ann.start(), bob.start()]);
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

  it('a record that the account may not write is a refusal, until it may', async () => {
    const locks = new LockManager({ providers: { sql: new TypeOrmVersionLockProvider(given()) }, shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
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

  it('without DELETE a table that is to clean itself is warned about once', async () => {
    const warnings: string[] = [];
    const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
    const locks = new LockManager({
      providers: { sql: new TypeOrmVersionLockProvider(given()) },
      namespace: 'unclean',
      logger,
    });
    managers.push(locks);
    await locks.start();
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
  ] as const)('needs DELETE to purge rows of %s', async (_, make) => {
    const locks = new LockManager({ providers: { sql: make() } });
    managers.push(locks);
    await locks.start();
    await (await locks.acquire('old')).release();
    await backend.admin.query(`UPDATE ${LOCKS} SET expires = 1`);
    await expect(locks.admin.purge({ unusedFor: '1s' })).rejects.toThrow(/denied/);
    await backend.admin.query(`GRANT DELETE ON ${LOCKS} TO locker`);
    await locks.admin.purge({ unusedFor: '1s' });
    // The one that each hour makes may have been first.
    expect(await backend.admin.query(`SELECT name FROM ${LOCKS} WHERE name LIKE '%:old'`)).toEqual([]);
    await backend.admin.query(`REVOKE DELETE ON ${LOCKS} FROM locker`);
  });
});
