import { DataSource, type DataSourceOptions } from 'typeorm';
import type { BackendContext } from '../../../api/lock-provider.js';
import { LockConfigError } from '../../../api/errors.js';
import { backOff, pause } from '../../../core/toolkit/timing.js';
import { propertyOf, type Run } from '../answer.js';
import type { DatabaseSettings } from '../options.js';
import { ALL_NAMES, isUnused } from '../purge.js';
import { LeaseTable } from './lease-table.js';
import { LimitedLeases } from './limited-leases.js';
import type { LeaseDatabase } from './version-attempt.js';

/** Answers rows as objects, or `{ changes }`, in the same tick, so no other code runs between. */
type RunNow = (sql: string, parameters: readonly (string | number | null)[]) => unknown;

interface SqliteConnection {
  readonly runNow: RunNow;
  close(): Promise<void>;
}

// How long before a database that is locked is asked again.
const PAUSE = { first: 10, most: 10 };

/**
 * Leases in SQLite: a file that several processes of one machine have open (better-sqlite3), or the memory of one process
 * (sql.js).
 *
 * A statement of ours never joins a transaction of the application, with which it would be rolled back. A file gets a connection of
 * our own. The one connection of sql.js is shared with the application; there BEGIN fails if a transaction is open, because SQLite has
 * no nested transactions. And as sql.js answers before it returns, no other statement comes between that BEGIN and our COMMIT. In both cases a
 * transaction that writes keeps us waiting until it has ended.
 */
export async function connectToSqlite(
  { dataSource, table, synchronize, statementTimeout }: Omit<DatabaseSettings, 'database'>,
  { clock, random }: BackendContext,
): Promise<LeaseDatabase> {
  const closing = new AbortController();
  const onceUnlocked = async <T>(work: () => T | Promise<T>): Promise<T> => {
    const giveUpAt = clock.now() + statementTimeout;
    for (;;) {
      if (closing.signal.aborted) throw new Error('The locks are closed, because the application stops.');
      try {
        return await work();
      } catch (error) {
        if (!isLocked(error) || clock.now() >= giveUpAt) throw error;
      }
      // A process does not end in the middle of an operation; on a server its socket would keep it.
      await pause(clock, backOff(random, 0, PAUSE), closing.signal, true);
    }
  };
  const connection = await onceUnlocked(() => open(dataSource));
  const run: Run = (sql, parameters = []) => onceUnlocked(() => connection.runNow(sql, parameters.map(toSqlite)));
  const close = async () => {
    if (closing.signal.aborted) return;
    closing.abort();
    await connection.close();
  };
  const leases = new LeaseTable('sqlite', table, run, 1);
  try {
    await leases.prepare(synchronize);
  } catch (error) {
    await close();
    throw error;
  }
  return {
    run,
    leases,
    limited: new LimitedLeases(leases, 'sqlite'),
    async purge(unusedFor, range = ALL_NAMES) {
      const { name, family } = leases;
      const sql = `DELETE FROM ${name} WHERE name > ? AND name < ? AND ${isUnused(family, unusedFor)}`;
      return family.changed(await run(sql, range));
    },
    diagnose: () => [],
    close,
  };
}

function open(dataSource: DataSource): SqliteConnection | Promise<SqliteConnection> {
  return dataSource.options.type === 'sqljs' ? shareSqljs(dataSource) : openFile(dataSource.options);
}

/** What we use of a database of better-sqlite3. */
interface FileDatabase {
  pragma(sql: string, options?: { simple: true }): unknown;
  prepare(sql: string): {
    readonly reader: boolean;
    all(...parameters: unknown[]): unknown[];
    run(...parameters: unknown[]): { changes: number };
  };
}

async function openFile(options: DataSourceOptions): Promise<SqliteConnection> {
  const own = new DataSource({
    ...options,
    // A wait within the driver would stop the event loop, so we wait by ourselves.
    timeout: 0,
    entities: [],
    subscribers: [],
    migrations: [],
    synchronize: false,
    migrationsRun: false,
    dropSchema: false,
    cache: false,
    logging: false,
  } as DataSourceOptions);
  await own.initialize();
  const database = propertyOf(own.driver, 'databaseConnection') as FileDatabase;
  // A write-ahead log stays consistent without waiting for the disk. A power cut may remove leases of processes that it has
  // ended too, and tokens that the clock has passed.
  if (database.pragma('journal_mode', { simple: true }) === 'wal') database.pragma('synchronous = NORMAL');
  return {
    runNow(sql, parameters) {
      const statement = database.prepare(sql);
      return statement.reader ? statement.all(...parameters) : statement.run(...parameters);
    },
    close: () => own.destroy(),
  };
}

/** What we use of a database of sql.js. */
interface MemoryDatabase {
  run(sql: string): unknown;
  prepare(sql: string): {
    bind(parameters: readonly unknown[]): unknown;
    step(): boolean;
    getAsObject(): object;
    getColumnNames(): readonly string[];
    free(): void;
  };
  getRowsModified(): number;
}

function shareSqljs(dataSource: DataSource): SqliteConnection {
  if (!dataSource.isInitialized) {
    throw new LockConfigError(
      'TypeOrmVersionLockProvider: a "dataSource" of sqljs must be initialized first, because its database is in the memory of the process.',
    );
  }
  return {
    runNow(sql, parameters) {
      // Looked up each time: the application may load another database.
      const database = propertyOf(dataSource.driver, 'databaseConnection') as MemoryDatabase;
      database.run('BEGIN IMMEDIATE');
      try {
        const answer = execute(database, sql, parameters);
        database.run('COMMIT');
        return answer;
      } catch (error) {
        database.run('ROLLBACK');
        throw error;
      }
    },
    close: () => Promise.resolve(),
  };
}

function execute(database: MemoryDatabase, sql: string, parameters: readonly unknown[]): unknown {
  const statement = database.prepare(sql);
  try {
    statement.bind(parameters);
    const rows: object[] = [];
    while (statement.step()) rows.push(statement.getAsObject());
    return statement.getColumnNames().length > 0 ? rows : { changes: database.getRowsModified() };
  } finally {
    statement.free();
  }
}

// Versions and times are far below 2^53 until the year 2255.
function toSqlite(value: unknown): string | number | null {
  return typeof value === 'bigint' ? Number(value) : (value as string | number | null);
}

/** Another transaction has the database, of another connection or, with sql.js, of the application on the same one. */
function isLocked(error: unknown): boolean {
  const code = propertyOf(error, 'code');
  if (typeof code === 'string' && /^SQLITE_(BUSY|LOCKED)/.test(code)) return true;
  return error instanceof Error && /within a transaction|database (table )?is locked/.test(error.message);
}
