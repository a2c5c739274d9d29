import { type Option, text } from '../../../core/toolkit/options.js';
import type { DatabaseFamily } from './family.js';

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
export function quotedTable(family: DatabaseFamily, table: string): string {
  const { schema, name } = partsOf(table);
  const quote = family === 'mysql' ? '`' : '"';
  return [...(schema === undefined ? [] : [schema]), name]
    .map((part) => quote + part.replaceAll(quote, quote + quote) + quote)
    .join('.');
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
export function createTableSql(family: DatabaseFamily, table: string): string {
  const name = quotedTable(family, table);
  switch (family) {
    case 'mysql':
      return (
        `CREATE TABLE IF NOT EXISTS ${name} (name VARBINARY(255) NOT NULL PRIMARY KEY, ` +
        `token BIGINT UNSIGNED NOT NULL DEFAULT 0, holder VARBINARY(32) NULL, expires BIGINT NOT NULL DEFAULT 0, ` +
        `label BLOB NULL, holders MEDIUMBLOB NULL) ENGINE = InnoDB`
      );
    case 'postgres':
      return (
        `CREATE TABLE IF NOT EXISTS ${name} (name varchar(255) COLLATE "C" PRIMARY KEY, ` +
        `token bigint NOT NULL DEFAULT 0, holder varchar(32) NULL, expires bigint NOT NULL DEFAULT 0, ` +
        `label text NULL, holders text NULL)`
      );
  }
}

/** A question to a server about a table: the statement and its values. */
type Question = (table: string) => readonly [sql: string, values: readonly unknown[]];

/**
 * - `schema`: in which schema a table without one in its name is, or would be created, as `name`.
 * - `fits`: whether the table can keep locks, as `fits`; no row where the account may not see that.
 */
export const TABLE_QUESTIONS: Readonly<Record<DatabaseFamily, Readonly<Record<'schema' | 'fits', Question>>>> = {
  mysql: {
    schema: () => ['SELECT DATABASE() AS name', []],
    // Other storage engines take no locks on rows, and without a primary key one key would have many rows.
    fits(table) {
      const { schema, name } = partsOf(table);
      const sql =
        `SELECT t.ENGINE = 'InnoDB' AND GROUP_CONCAT(c.COLUMN_NAME) = 'name' AS fits FROM information_schema.TABLES t ` +
        `LEFT JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME AND c.COLUMN_KEY = 'PRI' ` +
        `WHERE t.TABLE_SCHEMA = COALESCE(?, DATABASE()) AND t.TABLE_NAME = ? GROUP BY t.ENGINE`;
      return [sql, [schema ?? null, name]];
    },
  },
  postgres: {
    schema: (table) => [
      `SELECT COALESCE((SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace ` +
        `WHERE c.oid = to_regclass($1)), current_schema()) AS name`,
      [quotedTable('postgres', table)],
    ],
    // Without a primary key one key would have many rows, and each could be locked.
    fits: (table) => [
      `SELECT EXISTS (SELECT 1 FROM pg_index WHERE indrelid = $1::regclass AND indisunique AND indisvalid AND indpred IS NULL ` +
        `AND indnatts = 1 AND pg_get_indexdef(indexrelid, 1, true) = 'name') AS fits`,
      [quotedTable('postgres', table)],
    ],
  },
};
