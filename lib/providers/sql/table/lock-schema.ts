import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import { type Option, type OptionTable, read, text } from '../../../core/toolkit/options.js';
import { FAMILIES } from '../connection/databases.js';
import type { DatabaseFamily, Family } from '../connection/dialect.js';

export const DEFAULT_TABLE = 'distributed_lock';

// Identifiers can't be bound as values, but these don't need escaping and fit every database's length limit.
const TABLE = /^[A-Za-z_][A-Za-z0-9_]{0,55}(\.[A-Za-z_][A-Za-z0-9_]{0,55})?$/;

/** The `table` option: `name` or `schema.name`. */
export function tableName(): Option<string> {
  return text('a name, or a schema and a name, each of at most 56 letters, digits, and "_"', TABLE)
    .written()
    .or(DEFAULT_TABLE);
}

/** The table's quoted name. */
export function quotedTable({ quoted }: Family, table: string): string {
  const { schema, name } = partsOf(table);
  return schema === undefined ? quoted(name) : `${quoted(schema)}.${quoted(name)}`;
}

/** Splits a table name. A schema reported by the server can contain any character. */
export function partsOf(table: string): { readonly schema: string | undefined; readonly name: string } {
  const dot = table.lastIndexOf('.');
  return { schema: dot < 0 ? undefined : table.slice(0, dot), name: table.slice(dot + 1) };
}

/**
 * The table shared by all SQL locks, with one row per key and kind of lock:
 *
 * - `name`: compared byte by byte.
 * - `token`: the last fencing token, a lease's version, or the time a record was written, in µs since 1970.
 * - `holder`: the holder of a lease, or NULL.
 * - `expires`: when a lease or its retention ends, in µs since 1970. A past time shows when the row was last used. For
 * a record, it is 400 days after the write. For a row lock, it is the creation time, because updating it would cost a
 * commit.
 * - `label`: a lease's key, or the name of a record or instance, as ASCII JSON, if `name` doesn't show it.
 * - `holders`: a limited lease's holders, or a record's text as ASCII JSON.
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
 * The statements that create the lock table, for use in a migration. `synchronize` runs the same statements.
 *
 * @throws LockConfigError for an unsupported database or an invalid table name
 */
export function lockTablesSql(database: 'mysql' | 'postgres', options: LockTablesOptions = {}): string[] {
  const example = "lockTablesSql('postgres', { table: 'distributed_lock' })";
  const { table } = read({ name: 'lockTablesSql()', example }, options, OPTIONS);
  if (['mysql', 'postgres'].includes(database)) return [createTableSql(database, table)];
  throw new LockConfigError(`The database must be mysql (also for MariaDB) or postgres, but it is ${shown(database)}.`);
}
