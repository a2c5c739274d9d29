import { LockConfigError, LockError, LockUnavailableError } from '../../../api/errors.js';
import { propertyOf } from './answer.js';

/**
 * The reason why a statement failed.
 *
 * - `busy`: a lock that it needs is taken, or an operator has cancelled it while it waited.
 * - `rolled-back`: the server has undone the whole transaction (deadlock), so its locks are gone.
 * - `no-table`: the table does not exist.
 * - `refused`: the server would refuse it again: a missing privilege, a read-only server, a wrong table.
 * - `other`: anything else, such as a lost connection.
 */
type Failure = 'busy' | 'rolled-back' | 'no-table' | 'refused' | 'other';

/*
 * By the number that MySQL and MariaDB give, or the five characters of Postgres:
 *
 * - `busy`: lock wait timeout, NOWAIT of MariaDB (1205), NOWAIT of MySQL (3572), max_statement_time of MariaDB (1969),
 *   max_execution_time of MySQL (3024), KILL QUERY (1317), lock_not_available (55P03), query_canceled (57014).
 * - `rolled-back`: deadlock (1213, 40P01), deadlock of user locks (3058, MySQL), the row has changed since the snapshot (1020,
 *   innodb_snapshot_isolation of MariaDB), the table of locks is full (1206), serialization_failure (40001).
 * - `refused`: no access (1044, 1045, 1142, 1143, 1227, 1698, and 42501, row-level security among them), an account that is locked (3118,
 *   4151) or whose password has expired (1820, 1862), read-only (1036, 1290, 1792, 1836, 1874, 3989, 25006, and 1690 by our own question), READ COMMITTED with binlog_format=STATEMENT (1665), no such database (1049, 3D000) or column (1054, 42703), no primary key
 *   (42P10), a server that does not know our SQL (1064, 42601), or no such value of a setting (1231, 22023).
 */
const FAILURES: readonly (readonly [Failure, readonly unknown[]])[] = [
  ['busy', [1205, 3572, 1969, 3024, 1317, '55P03', '57014']],
  ['rolled-back', [1213, 3058, 1020, 1206, '40P01', '40001']],
  ['no-table', [1146, '42P01']],
  ['refused', [1044, 1045, 1142, 1143, 1227, 1698, 3118, 4151, 1820, 1862, 1665, 1049, 1054, 1064, 1231]],
  ['refused', [1036, 1290, 1792, 1836, 1874, 3989, 1690]],
  ['refused', ['42501', '25006', '3D000', '42703', '42P10', '42601', '22023']],
];

const LOGIN: readonly unknown[] = [1045, 1698, 3118, 4151, 1820, 1862];
/** A class of Postgres: no such account, or a wrong password. */
const LOGIN_CLASS = /^28...$/;
const NO_DATABASE: readonly unknown[] = [1044, 1049, '3D000'];
const OTHER_TABLE: readonly unknown[] = [1054, '42703', '42P10'];
// The last number is the answer to our own question for it.
const READ_ONLY: readonly unknown[] = [1036, 1290, 1792, 1836, 1874, 3989, '25006', 1690];

/** The remedy for a login that is refused. */
export const LOGIN_REMEDY = 'Check the user and the password, and from which hosts the account may log in.';

/** The reason why a statement failed, by the error of its driver. */
export function failureOf(error: unknown): Failure {
  const [errno, code] = [propertyOf(error, 'errno'), propertyOf(error, 'code')];
  const known = FAILURES.find(([, codes]) => codes.includes(errno) || codes.includes(code));
  if (known) return known[0];
  // Postgres, where the table is dropped while a statement begins: by an internal error.
  if (error instanceof Error && error.message.includes('could not open relation with OID')) return 'no-table';
  return typeof code === 'string' && LOGIN_CLASS.test(code) ? 'refused' : 'other';
}

/** Whether the server has refused the login: no such account, or a wrong password. */
export function isRefusedLogin(error: unknown): boolean {
  const codes = [propertyOf(error, 'errno'), propertyOf(error, 'code')];
  return codes.some((code) => LOGIN.includes(code) || (typeof code === 'string' && LOGIN_CLASS.test(code)));
}

/** Whether the server takes no writes. */
export function isReadOnlyRefusal(error: unknown): boolean {
  return [propertyOf(error, 'errno'), propertyOf(error, 'code')].some((code) => READ_ONLY.includes(code));
}

/** The error for a caller. @param what is not available, such as `Lock "order:42"` */
export function lockErrorOf(
  error: unknown,
  what: string,
  details: { readonly provider: string; readonly key?: string | undefined; readonly sent?: boolean },
): LockError {
  if (LockError.is(error)) return error;
  const reason = reasonOf(error);
  const failure = failureOf(error);
  return failure === 'refused' || failure === 'no-table'
    ? new LockConfigError(
        `${what} of provider "${details.provider}" is not available. The database refused: ${reason}. ${remedyOf(error)}`,
        { ...details, refused: failure === 'refused', cause: error },
      )
    : new LockUnavailableError(
        `${what} of provider "${details.provider}" is not available: ${reason}. Check the address and the credentials, and that the server is up; its log says more.`,
        { ...details, cause: error },
      );
}

/** The words of the server or of the driver. */
export function reasonOf(error: unknown): string {
  // Node gives only a code where all addresses of a name refuse.
  const reason = (error instanceof Error && error.message) || String(propertyOf(error, 'code') ?? error);
  return reason.replace(/\.$/, '');
}

/** The remedy for a refusal: each kind has one of its own. */
function remedyOf(error: unknown): string {
  const codes = [propertyOf(error, 'errno'), propertyOf(error, 'code')];
  const isOneOf = (known: readonly unknown[]) => codes.some((code) => known.includes(code));
  if (isRefusedLogin(error)) return LOGIN_REMEDY;
  if (isOneOf(NO_DATABASE)) return 'Check the name of the database, and that the account may use it.';
  if (isOneOf(OTHER_TABLE)) {
    return 'The table is not one of this version: create it by the migration, or give "table" the name of another one.';
  }
  if (failureOf(error) === 'no-table')
    return 'The table was dropped: create it by the migration, or set "synchronize".';
  if (isReadOnlyRefusal(error)) return 'Give the provider the address of the server that takes writes.';
  return 'The account needs SELECT, INSERT and UPDATE on the table of the locks (DELETE for purge()), on a server that takes writes.';
}
