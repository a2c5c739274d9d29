import type { MysqlSource } from '../connection/mysql-dialect.js';
import type { PostgresSource } from '../connection/postgres-dialect.js';

/** Answers rows as objects, or `{ changes }`, in the same tick, so no other code runs between. */
type RunNow = (sql: string, parameters: readonly (string | number | null)[]) => unknown;

export interface SqliteConnection {
  readonly runNow: RunNow;
  close(): Promise<void>;
}

/** SQLite, by whatever driver. */
export interface SqliteSource {
  readonly database: 'sqlite';
  open(): SqliteConnection | Promise<SqliteConnection>;
}

/** A database server, from which connections of our own come: those of the application's pool may all wait for the locks. */
export type ServerSource = MysqlSource | PostgresSource;

/** A database, from which connections of our own come. */
export type SqlSource = ServerSource | SqliteSource;
