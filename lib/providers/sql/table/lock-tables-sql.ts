import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import { checkGiven, type OptionNames, refuseUnknown } from '../../../core/toolkit/given-options.js';
import { assertTableName, createRecordTableSql, createTableSql, DEFAULT_TABLE } from './lock-schema.js';

export interface LockTablesOptions {
  /** `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string;
  /** Also the table of the records, `<table>_record`, which a provider needs as the `casStore` of a failover. Default false; not for SQLite. */
  readonly records?: boolean | undefined;
}

const OPTIONS: OptionNames<LockTablesOptions> = { table: true, records: true };

/**
 * The statements that create the tables of the locks, as `synchronize` runs them: one for each table, for a migration of your own.
 *
 * @throws LockConfigError for another database, an invalid name, and records in SQLite
 */
export function lockTablesSql(database: 'mysql' | 'postgres' | 'sqlite', options: LockTablesOptions = {}): string[] {
  checkGiven('lockTablesSql()', options, "lockTablesSql('postgres', { table: 'distributed_lock' })");
  refuseUnknown('lockTablesSql()', options, OPTIONS);
  const { table = DEFAULT_TABLE, records = false } = options;
  if (!['mysql', 'postgres', 'sqlite'].includes(database)) {
    throw new LockConfigError(
      `The database of the lock tables must be mysql (also for MariaDB), postgres or sqlite, and is ${shown(database)}.`,
    );
  }
  assertTableName('lockTablesSql()', table);
  if (!records) return [createTableSql(database, table)];
  if (database === 'sqlite')
    throw new LockConfigError(
      'lockTablesSql(): "records" is true, and SQLite keeps no records; use a database server.',
    );
  return [createTableSql(database, table), createRecordTableSql(database, table)];
}
