import { afterAll, beforeAll } from '@jest/globals';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { LockTables1700000000000, TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import type { CompiledLibrary } from '../servers/compiled-library.js';
import { contend, typeOrmLibrary } from './lease-processes.js';
import { sqliteHarness } from './version-backend.js';
import { describeUnless } from '../unless.js';

const folder = process.env['SQLITE_DRIVER'];
const path = folder === undefined ? undefined : join(folder, 'node_modules/better-sqlite3');
const reason = path === undefined ? 'better-sqlite3 has to be compiled: npm run test:sqlite-file does it' : undefined;

describeUnless(reason)('leases in a file of SQLite', () => {
  // The body of a suite also runs where the suite is skipped.
  const files = path === undefined ? '' : mkdtempSync(join(tmpdir(), 'lock-sqlite-'));
  const options: DataSourceOptions = {
    type: 'better-sqlite3',
    database: join(files, 'locks.db'),
    enableWAL: true,
    driver: path === undefined ? undefined : (createRequire(import.meta.url)(path) as unknown),
  };
  let dataSource: DataSource;
  let admin: DataSource;
  let library: CompiledLibrary;

  beforeAll(async () => {
    // Not before: making one loads the driver.
    dataSource = new DataSource(options);
    admin = new DataSource(options);
    await admin.initialize();
    library = await typeOrmLibrary();
  }, 60_000);
  afterAll(async () => {
    await admin.destroy();
    await library.remove();
    rmSync(files, { recursive: true, force: true });
  });

  describeLockProvider(
    'typeorm leases in a file of SQLite',
    sqliteHarness(
      () => dataSource,
      () => admin,
    ),
  );

  it('several processes never hold a key at the same time', async () => {
    // Each process loads the driver by itself.
    await contend(
      library,
      { type: 'better-sqlite3', database: options.database, enableWAL: true, driverPath: path },
      admin,
      4,
      24,
    );
  }, 240_000);

  it('a statement never joins a transaction of the application, which only delays it', async () => {
    const application = await new DataSource(options).initialize();
    const locks = new LockManager({
      providers: { sql: new TypeOrmVersionLockProvider({ dataSource: application, statementTimeout: 1_000 }) },
    });
    await locks.start();
    await application.transaction(async (manager) => {
      await manager.query('CREATE TABLE mine (n INT)');
      await expect(locks.acquire('a', { wait: 0 })).rejects.toBeInstanceOf(LockUnavailableError);
    });
    await (await locks.acquire('a')).release();
    await locks.stop();
    await application.destroy();
  });

  it('the migration makes the table', async () => {
    const database = join(files, 'migrated.db');
    const source = new DataSource({ ...options, database, migrations: [LockTables1700000000000] });
    const locks = new LockManager({ providers: { sql: new TypeOrmVersionLockProvider({ dataSource: source }) } });
    await expect(locks.start()).rejects.toBeInstanceOf(LockConfigError);
    await source.initialize();
    await source.runMigrations();
    const later = new LockManager({ providers: { sql: new TypeOrmVersionLockProvider({ dataSource: source }) } });
    await later.start();
    await (await later.acquire('a')).release();
    await Promise.all([locks.stop(), later.stop()]);
    await source.destroy();
  });
});
