import { LockConfigError, LockError, LockUnavailableError } from '../../../api/errors.js';
import { propertyOf } from './answer.js';

/**
 * The reason why a statement failed.
 *
 * - `busy`: a row that it needs is locked.
 * - `rolled-back`: the server has undone the whole transaction (deadlock), so its locks are gone.
 * - `no-table`: the table does not exist.
 * - `refused`: the server would refuse it again: a missing privilege, a read-only server, a wrong table.
 * - `other`: anything else, such as a lost connection.
 */
type Failure = 'busy' | 'rolled-back' | 'no-table' | 'refused' | 'other';

// By the number that MySQL and MariaDB give, or the five characters of Postgres.
const FAILURES = new Map<unknown, Failure>([
  [1205, 'busy'], // lock wait timeout; NOWAIT of MariaDB
  [3572, 'busy'], // NOWAIT of MySQL
  [1969, 'busy'], // max_statement_time of MariaDB
  [3024, 'busy'], // max_execution_time of MySQL
  ['55P03', 'busy'], // lock_not_available: NOWAIT, lock_timeout
  ['57014', 'busy'], // query_canceled: statement_timeout
  [1213, 'rolled-back'], // deadlock
  [3058, 'rolled-back'], // deadlock of user locks (MySQL)
  [1020, 'rolled-back'], // the row has changed since the snapshot (innodb_snapshot_isolation of MariaDB)
  [1206, 'rolled-back'], // the table of locks is full
  ['40P01', 'rolled-back'], // deadlock_detected
  ['40001', 'rolled-back'], // serialization_failure
  [1146, 'no-table'],
  ['42P01', 'no-table'],
  ['25006', 'refused'], // read_only_sql_transaction
  ['3D000', 'refused'], // no such database
  ['42501', 'refused'], // insufficient_privilege, row-level security among them
  ['42703', 'refused'], // no such column
  ['42P10', 'refused'], // no primary key
  ['42601', 'refused'], // a server that does not know our SQL
  // MySQL: no access (1044, 1045, 1142, 1143, 1227, 1698), read-only (1290, 1792, 1836), READ COMMITTED with
  // binlog_format=STATEMENT (1665), no such database, no such column, a server that does not know our SQL (1064).
  ...[1044, 1045, 1142, 1143, 1227, 1698, 1290, 1792, 1836, 1665, 1049, 1054, 1064].map(
    (errno) => [errno, 'refused'] as const,
  ),
]);

/** The reason why a statement failed, by the error of its driver. */
export function failureOf(error: unknown): Failure {
  const [errno, code] = [propertyOf(error, 'errno'), propertyOf(error, 'code')];
  const known = FAILURES.get(errno) ?? FAILURES.get(code);
  if (known) return known;
  // SQLite has no code for them.
  if (error instanceof Error && error.message.includes('no such table')) return 'no-table';
  if (error instanceof Error && error.message.includes('no such column')) return 'refused';
  // A class of Postgres: no such account, or a wrong password.
  return typeof code === 'string' && /^28...$/.test(code) ? 'refused' : 'other';
}

/** The error for a caller. @param what is not available, such as `Lock "order:42"` */
export function lockErrorOf(
  error: unknown,
  what: string,
  details: { readonly provider: string; readonly key?: string | undefined; readonly sent?: boolean },
): LockError {
  if (LockError.is(error)) return error;
  // Node gives only a code where all addresses of a name refuse.
  const reason = (error instanceof Error && error.message) || String(propertyOf(error, 'code') ?? error);
  return ['refused', 'no-table'].includes(failureOf(error))
    ? new LockConfigError(
        `${what} of provider "${details.provider}" is not available. The database refused: ${reason}. ` +
          'The account needs SELECT, INSERT and UPDATE on the table of the locks (DELETE for purge()), on a server that takes writes.',
        { ...details, cause: error },
      )
    : new LockUnavailableError(
        `${what} of provider "${details.provider}" is not available: ${reason}. Check the address and the credentials, and that the server is up; its log says more.`,
        { ...details, cause: error },
      );
}
