import type { MysqlSource } from '../connection/mysql-dialect.js';
import type { PostgresSource } from '../connection/postgres-dialect.js';

/** A database server, from which connections of our own come: those of the application's pool may all wait for the locks. */
export type SqlSource = MysqlSource | PostgresSource;
