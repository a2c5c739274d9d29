import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import { type Option, type OptionTable, read, text } from '../../../core/toolkit/options.js';
import { FAMILIES } from '../connection/databases.js';
import type { DatabaseFamily, Family } from '../connection/dialect.js';

/** The default name of the table. */
export const DEFAULT_TABLE = 'distributed_lock';

// Identifiers cannot be bound as values. These need no escape in any database, and none cuts them off.
const TABLE = /^[A-Za-z_][A-Za-z0-9_]{0,55}(\.[A-Za-z_][A-Za-z0-9_]{0,55})?$/;

/** The option `table`: the name of a table, or of a schema and a table. */
export function tableName(): Option<string> {
  return text('a name, or a schema and a name, of at most 56 letters, digits and "_" each', TABLE)
    .written()
    .or(DEFAULT_TABLE);
}

/** The name of the table, quoted for a statement. */
export function quotedTable({ quoted }: Family, table: string): string {
  const { schema, name } = partsOf(table);
  return schema === undefined ? quoted(name) : `${quoted(schema)}.${quoted(name)}`;
}

/** The schema, which may have any characters where the server has named it, and the name of the table. */
export function partsOf(table: string): { readonly schema: string | undefined; readonly name: string } {
  const dot = table.lastIndexOf('.');
  return { schema: dot < 0 ? undefined : table.slice(0, dot), name: table.slice(dot + 1) };
}

/**
 * The table that all locks of this folder share, a row for each key of each kind of lock:
 *
 * - `name`: compared byte by byte.
 * - `token`: the last fencing token; the version of a lease; when a record was written, in µs since 1970.
 * - `holder`: the holder of a lease, or NULL.
 * - `expires`: in µs since 1970, until when a lease is held or retained. When that is past, it is the time of the last use.
 * Of a record it is 400 days after it was written. A row lock does not write its use in its row, because that would cost a commit: there
 *   it is the time when the row was created.
 * - `label`: what the row is for where its name does not show it, as JSON in ASCII: the key of a lease, the names of a record and an instance.
 * - `holders`: of a limited lease, the list of them; the text of a record, as JSON in ASCII.
 */
export function createTableSql(database: DatabaseFamily, table: string): string {
  const family = FAMILIES[database];
  return family.createTable(quotedTable(family, table));
}

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
