import type { DatabaseFamily, Dialect, Family } from './dialect.js';
import { mysql, mysqlDialect, type MysqlSource } from './mysql.js';
import { postgres, postgresDialect, type PostgresSource } from './postgres.js';

/*
 * The one file that knows both kinds of databases: everything else asks a Family or a Dialect.
 */

/** A database server that we open our own connections to: those of the application's pool may all wait for the locks. */
export type SqlSource = MysqlSource | PostgresSource;

export const FAMILIES: Readonly<Record<DatabaseFamily, Family>> = { mysql, postgres };

/** @param inSessions whether locks live in sessions */
export function dialectOf(source: SqlSource, connectTimeout: number, inSessions: boolean): Dialect {
  return source.database === 'mysql'
    ? mysqlDialect(source, connectTimeout)
    : postgresDialect(source, connectTimeout, inSessions);
}
