import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import { checkGiven, type OptionNames, refuseUnknown } from '../../../core/toolkit/given-options.js';
import { assertTableName, createTableSql, DEFAULT_TABLE } from './lock-schema.js';

export interface LockTablesOptions {
  /** `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string;
}

const OPTIONS: OptionNames<LockTablesOptions> = { table: true };

/**
 * The statements that create the table of the locks, as `synchronize` runs them, for a migration of your own.
 *
 * @throws LockConfigError for another database, and for an invalid name
 */
export function lockTablesSql(database: 'mysql' | 'postgres', options: LockTablesOptions = {}): string[] {
  checkGiven('lockTablesSql()', options, "lockTablesSql('postgres', { table: 'distributed_lock' })");
  refuseUnknown('lockTablesSql()', options, OPTIONS);
  const { table = DEFAULT_TABLE } = options;
  if (!['mysql', 'postgres'].includes(database)) {
    throw new LockConfigError(
      `The database of the lock tables must be mysql (also for MariaDB) or postgres, and is ${shown(database)}.`,
    );
  }
  assertTableName('lockTablesSql()', table);
  return [createTableSql(database, table)];
}
