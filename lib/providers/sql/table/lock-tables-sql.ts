import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import { checkGiven, type OptionNames, refuseUnknown } from '../../../core/toolkit/given-options.js';
import { assertTableName, createRecordTableSql, createTableSql, DEFAULT_TABLE } from './lock-schema.js';

export interface LockTablesOptions {
  /** `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string;
  /** Also the table of the records, `<table>_record`, which a provider needs as the `casStore` of a failover. Default false. */
  readonly records?: boolean | undefined;
}

const OPTIONS: OptionNames<LockTablesOptions> = { table: true, records: true };

/**
 * The statements that create the tables of the locks, as `synchronize` runs them: one for each table, for a migration of your own.
 *
 * @throws LockConfigError for another database, and for an invalid name
 */
export function lockTablesSql(database: 'mysql' | 'postgres', options: LockTablesOptions = {}): string[] {
  checkGiven('lockTablesSql()', options, "lockTablesSql('postgres', { table: 'distributed_lock' })");
  refuseUnknown('lockTablesSql()', options, OPTIONS);
  const { table = DEFAULT_TABLE, records = false } = options;
  if (!['mysql', 'postgres'].includes(database)) {
    throw new LockConfigError(
      `The database of the lock tables must be mysql (also for MariaDB) or postgres, and is ${shown(database)}.`,
    );
  }
  assertTableName('lockTablesSql()', table);
  const locks = createTableSql(database, table);
  return records ? [locks, createRecordTableSql(database, table)] : [locks];
}
