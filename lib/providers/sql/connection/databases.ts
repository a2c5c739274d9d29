import type { DatabaseFamily, Dialect, Family } from './dialect.js';
import { mysql, mysqlDialect, type MysqlSource } from './mysql.js';
import { postgres, postgresDialect, type PostgresSource } from './postgres.js';

/*
 * The only file that knows about both kinds of databases. Everything else uses a Family or a Dialect.
 */

/**
 * A database server to which we open our own connections, because all connections in the application's pool may be waiting
 * for locks.
 */
export type SqlSource = MysqlSource | PostgresSource;

export const FAMILIES: Readonly<Record<DatabaseFamily, Family>> = { mysql, postgres };

/** @param inSessions whether locks belong to sessions */
export function dialectOf(source: SqlSource, connectTimeout: number, inSessions: boolean): Dialect {
  return source.database === 'mysql'
    ? mysqlDialect(source, connectTimeout)
    : postgresDialect(source, connectTimeout, inSessions);
}
