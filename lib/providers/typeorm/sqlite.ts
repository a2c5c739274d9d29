import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../api/errors.js';
import { propertyOf } from '../sql/connection/answer.js';
import type { SqliteConnection } from '../sql/sources/source.js';

/** The part of a database of better-sqlite3 that is used here. */
interface FileDatabase {
  pragma(sql: string, options?: { simple: true }): unknown;
  prepare(sql: string): {
    readonly reader: boolean;
    all(...parameters: unknown[]): unknown[];
    run(...parameters: unknown[]): { changes: number };
  };
  close(): void;
}

/** The part of TypeORM's driver that is used here: it knows how the options of a DataSource become those of better-sqlite3. */
interface FileDriver {
  createDatabaseConnection(): Promise<FileDatabase>;
}

/** A connection of our own to the file. */
export async function openFile(options: DataSourceOptions): Promise<SqliteConnection> {
  // A wait within the driver would stop the event loop, so we wait by ourselves.
  const { driver } = new DataSource({ ...options, timeout: 0 } as DataSourceOptions);
  const database = await (driver as unknown as FileDriver).createDatabaseConnection();
  // A write-ahead log stays consistent without waiting for the disk. A power cut may remove leases of processes that it has
  // ended too, and tokens that the clock has passed.
  if (database.pragma('journal_mode', { simple: true }) === 'wal') database.pragma('synchronous = NORMAL');
  return {
    runNow(sql, parameters) {
      const statement = database.prepare(sql);
      return statement.reader ? statement.all(...parameters) : statement.run(...parameters);
    },
    close() {
      database.close();
      return Promise.resolve();
    },
  };
}

/** The part of a database of sql.js that is used here. */
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

/** The one connection of the application. */
export function shareSqljs(dataSource: DataSource): SqliteConnection {
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
