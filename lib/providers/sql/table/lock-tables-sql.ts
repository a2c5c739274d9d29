import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import { type OptionTable, read } from '../../../core/toolkit/options.js';
import { createTableSql, tableName } from './lock-schema.js';

export interface LockTablesOptions {
  /** `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string;
}

const OPTIONS = { table: tableName() } satisfies OptionTable<LockTablesOptions>;

/**
 * The statements that create the table of the locks, as `synchronize` runs them, for a migration of your own.
 *
 * @throws LockConfigError for another database, and for an invalid name
 */
export function lockTablesSql(database: 'mysql' | 'postgres', options: LockTablesOptions = {}): string[] {
  const example = "lockTablesSql('postgres', { table: 'distributed_lock' })";
  const { table } = read({ name: 'lockTablesSql()', example }, options, OPTIONS);
  if (['mysql', 'postgres'].includes(database)) return [createTableSql(database, table)];
  throw new LockConfigError(
    `The database of the lock tables must be mysql (also for MariaDB) or postgres, and is ${shown(database)}.`,
  );
}
