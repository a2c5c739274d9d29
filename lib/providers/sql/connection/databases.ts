import type { DatabaseFamily, Dialect, Family } from './dialect.js';
import { mysql, mysqlDialect, type MysqlSource } from './mysql.js';
import { postgres, postgresDialect, type PostgresSource } from './postgres.js';

/** A database server, from which connections of our own come: those of the application's pool may all wait for the locks. */
export type SqlSource = MysqlSource | PostgresSource;

export const FAMILIES: Readonly<Record<DatabaseFamily, Family>> = { mysql, postgres };

/** @param inSessions whether locks live in sessions */
export function dialectOf(source: SqlSource, connectTimeout: number, inSessions: boolean): Dialect {
  return source.database === 'mysql'
    ? mysqlDialect(source, connectTimeout)
    : postgresDialect(source, connectTimeout, inSessions);
}
