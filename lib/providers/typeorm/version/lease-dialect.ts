import { firstRow, propertyOf } from '../dialect.js';
import type { DatabaseFamily } from '../table-layout.js';

/** How one family of databases spells what a lease row needs, beside its table and its clock. */
export interface LeaseDialect {
  readonly family: DatabaseFamily;
  /** The bound value at this position, counted from 1. */
  value(position: number): string;
  /** The function that gives the largest of its arguments. */
  readonly greatest: string;
  /** An UPDATE of one row that sets `token` to this expression, and whose answer tells what that was. */
  updateToken(table: string, expression: string, rest: string): string;
  /** The token out of the answer of such a statement, or undefined if no row was updated. */
  tokenOf(answer: unknown): bigint | undefined;
  /** How many rows a statement has changed. */
  changed(answer: unknown): number;
}

/**
 * No UPDATE … RETURNING here (MariaDB has it for INSERT and DELETE alone). LAST_INSERT_ID(expression) is evaluated for the
 * very row that is updated, under its lock, and comes back in the same packet that says that the row was updated: nothing
 * can come between.
 */
const mysql: LeaseDialect = {
  family: 'mysql',
  value: () => '?',
  greatest: 'GREATEST',
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = LAST_INSERT_ID(${expression})${rest}`,
  tokenOf: (answer) => (mysql.changed(answer) === 1 ? BigInt(String(propertyOf(answer, 'insertId'))) : undefined),
  changed: (answer) => Number(propertyOf(answer, 'affectedRows') ?? 0),
};

const postgres: LeaseDialect = {
  family: 'postgres',
  value: (position) => `$${position}`,
  greatest: 'GREATEST',
  updateToken: (table, expression, rest) => `UPDATE ${table} SET token = ${expression}${rest} RETURNING token`,
  tokenOf: (answer) => bigintOf(firstRow(answer)?.['token']),
  changed: (answer) => Number(propertyOf(answer, 'rowCount') ?? 0),
};

/** From 3.35 on, which has RETURNING. */
const sqlite: LeaseDialect = {
  family: 'sqlite',
  value: () => '?',
  greatest: 'MAX',
  updateToken: postgres.updateToken.bind(postgres),
  tokenOf: postgres.tokenOf.bind(postgres),
  changed: (answer) => Number(propertyOf(answer, 'changes') ?? 0),
};

export const LEASE_DIALECTS: Readonly<Record<DatabaseFamily, LeaseDialect>> = { mysql, postgres, sqlite };

/** A driver gives a 64-bit number as a number, as text or as a bigint, as the application has chosen. */
function bigintOf(value: unknown): bigint | undefined {
  return value === undefined || value === null ? undefined : BigInt(value as string | number | bigint);
}
