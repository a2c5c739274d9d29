import { firstRow, propertyOf } from '../connection/answer.js';

/** Databases that spell alike. */
export type DatabaseFamily = 'mysql' | 'postgres';

/** How one family of databases spells what our statements need. */
export interface Family {
  /** The bound value at this position, counted from 1. */
  readonly value: (position: number) => string;
  /** Whether a column has one of `count` values, which are bound from this position on, as `list` gives them. */
  readonly isAmong: (column: string, position: number, count: number) => string;
  readonly list: (values: readonly unknown[]) => readonly unknown[];
  /**
   * The database's time in µs since 1970, read once for a whole statement, after it was sent: two readings in one statement could find
   * a lease expired and renew it. UTC, because a local time comes twice at the end of summer time.
   */
  readonly now: string;
  /** The function that gives the largest of its arguments. */
  readonly greatest: string;
  /**
   * An INSERT of name and label, with the time as the last use. If a row of this primary key exists, it does nothing, and waits for no
   * transaction that has locked it.
   */
  readonly insertKey: (table: string) => string;
  /** An UPDATE of one row that sets `token` to this expression, and whose answer contains the new token. */
  readonly updateToken: (table: string, expression: string, rest: string) => string;
  /** The token from the answer of such a statement, or undefined if no row was updated. */
  readonly tokenOf: (answer: unknown) => bigint | undefined;
  /**
   * A DELETE of those of `count` names, bound as `list` gives them, whose rows meet the condition and are locked by nobody. It locks and waits
   * for no other row. One statement, so in autocommit a client that is frozen or cut off leaves nothing locked.
   */
  readonly deleteUnlocked: (table: string, condition: string, count: number) => string;
  /** How many rows a statement has changed. */
  readonly changed: (answer: unknown) => number;
  /** The function that gives the position of a text in another. */
  readonly positionOf: string;
  readonly join: (...texts: readonly string[]) => string;
  /** A whole number as text. */
  readonly asText: (number: string) => string;
}

const MYSQL_NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;

// Out of range, an error, on a server that is read-only: from MariaDB 12 on the variable is a word. Accounts with SUPER or READ ONLY ADMIN may
// write there nevertheless, while others lock on the new writer.
const ZERO_ON_A_WRITER = `CAST(0 * (~0 + (CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF'))) AS SIGNED)`;

/**
 * No UPDATE … RETURNING here (MariaDB has it for INSERT and DELETE only). LAST_INSERT_ID(expression) is evaluated for the row that is
 * updated, under its lock, and comes back in the packet that reports the update, so no other statement can come between.
 */
const mysql: Family = {
  value: () => '?',
  isAmong: (column, _, count) => `${column} IN (${Array(count).fill('?').join(', ')})`,
  list: (values) => values,
  now: MYSQL_NOW,
  greatest: 'GREATEST',
  // IGNORE alone would wait. MariaDB can be told not to, MySQL cannot.
  insertKey: (table) =>
    `INSERT IGNORE INTO ${table} (name, expires, label) SELECT a.name, ${MYSQL_NOW}, a.label ` +
    `FROM (SELECT ? AS name, ? AS label) AS a LEFT JOIN ${table} AS b ON b.name = a.name WHERE b.name IS NULL`,
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = LAST_INSERT_ID(${expression})${rest}`,
  tokenOf: (answer) => (mysql.changed(answer) === 1 ? BigInt(String(propertyOf(answer, 'insertId'))) : undefined),
  // For a list of names both servers may scan the table, lock other rows, and wait for those that are held (measured on MariaDB 10.11 and
  // MySQL 9.7). Joined in this order and by force, each row is found by its primary key. With LIMIT the inner table is not merged into the
  // outer one, which MySQL would refuse.
  deleteUnlocked: (table, condition, count) =>
    `DELETE a FROM (SELECT name FROM (${Array(count).fill('SELECT ? AS wanted').join(' UNION ALL ')}) AS b ` +
    `STRAIGHT_JOIN ${table} FORCE INDEX (PRIMARY) ON name = wanted WHERE ${condition} LIMIT ${count} FOR UPDATE SKIP LOCKED) AS c ` +
    `STRAIGHT_JOIN ${table} AS a FORCE INDEX (PRIMARY) ON a.name = c.name`,
  changed: (answer) => Number(propertyOf(answer, 'affectedRows') ?? 0),
  positionOf: 'INSTR',
  join: (...texts) => `CONCAT(${texts.join(', ')})`,
  asText: (number) => `CAST(${number} AS CHAR)`,
};

const postgres: Family = {
  value: (position) => `$${position}`,
  // Several as one value: the text is the same for every number of them, so the server parses it once. One by itself costs the server less.
  isAmong: (column, position, count) => (count === 1 ? `${column} = $${position}` : `${column} = ANY($${position})`),
  list: (values) => (values.length === 1 ? values : [values]),
  now: `(extract(epoch FROM statement_timestamp()) * 1000000)::bigint`,
  greatest: 'GREATEST',
  // Names the column: without a primary key the rows of one key would multiply, and each could be locked.
  insertKey: (table) =>
    `INSERT INTO ${table} (name, expires, label) VALUES ($1, ${postgres.now}, $2) ON CONFLICT (name) DO NOTHING`,
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = ${expression}${rest} RETURNING token`,
  tokenOf: (answer) => bigintOf(firstRow(answer)?.['token']),
  // As an array the inner SELECT is run once, whatever the plan is.
  deleteUnlocked(table, condition, count) {
    const unlocked = `SELECT name FROM ${table} WHERE ${this.isAmong('name', 1, count)} AND ${condition} FOR UPDATE SKIP LOCKED`;
    return `DELETE FROM ${table} WHERE name = ANY(ARRAY(${unlocked}))`;
  },
  changed: (answer) => Number(propertyOf(answer, 'rowCount') ?? 0),
  positionOf: 'strpos',
  join: (...texts) => texts.join(' || '),
  asText: (number) => `CAST(${number} AS text)`,
};

export const FAMILIES: Readonly<Record<DatabaseFamily, Family>> = { mysql, postgres };

/** A statement that reads the time fails on a server that may not be written any more. Postgres refuses such statements to every account. */
export function onWriter(database: DatabaseFamily): Family {
  return database === 'mysql' ? { ...mysql, now: `(${MYSQL_NOW} + ${ZERO_ON_A_WRITER})` } : postgres;
}

/** A driver gives a 64-bit number as a number, as text or as a bigint, as the application has chosen. */
function bigintOf(value: unknown): bigint | undefined {
  return value === undefined || value === null ? undefined : BigInt(value as string | number | bigint);
}
