import { LockConfigError } from '../../../api/errors.js';
import type { LockMode } from '../../../api/lock-options.js';
import { firstRow, type Run } from '../answer.js';
import { advisoryLockNumber, userLockName } from './advisory-name.js';

/**
 * How one database spells its advisory locks. Every statement takes the name of one lock as its only value, and resolves to one
 * row: `done` is 1 or true if it succeeded.
 */
export interface AdvisoryStatements {
  readonly hasShared: boolean;
  /** The part of the names beside namespace and key. @throws LockConfigError on a server that is too old. */
  scopeOf(run: Run): Promise<string>;
  nameOf(scope: string, namespace: string, key: string): string;
  /** Takes the lock if it is free. A session that has it gets it once more: it never blocks itself. */
  tryLock(mode: LockMode): string;
  /** Takes a shared lock once more on a session that has it, unless a waiter is queued, which that would overtake. */
  readonly joinReaders: string;
  /** Takes the lock as soon as it is free. */
  awaitLock(mode: LockMode): string;
  /** Looks at the server again, which may have changed during a wait. */
  readonly afterWait: string;
  unlock(mode: LockMode): string;
}

const READ_ONLY = 2;

/**
 * Whether a statement succeeded.
 *
 * @throws LockConfigError on a server that has become read-only: others may lock on the writer
 * @throws Error when the server does not know (GET_LOCK: NULL)
 */
export function isDone(answer: unknown): boolean {
  const done = firstRow(answer)?.['done'];
  if (done === null || done === undefined) throw new Error('The server does not know whether the lock is free.');
  if (Number(done) === READ_ONLY) {
    throw new LockConfigError(
      'This server has become read-only, so others may lock on the writer: give the provider the address of the writer.',
    );
  }
  return Number(done) === 1;
}

// In seconds: a year, the longest that MySQL takes. Its clock is the server's wall clock; the wait ends by its caller.
const LONGEST_WAIT = 31_536_000;

/** `GET_LOCK` of MySQL and MariaDB. */
export const userLocks = (isReadOnly: string): AdvisoryStatements => ({
  hasShared: false,
  async scopeOf(run) {
    const name = firstRow(await run('SELECT DATABASE() AS name'))?.['name'];
    return typeof name === 'string' ? name : '';
  },
  nameOf: userLockName,
  tryLock: () => `SELECT IF(${isReadOnly}, ${READ_ONLY}, GET_LOCK(?, 0)) AS done`,
  joinReaders: 'SELECT 0 AS done',
  awaitLock: () => `SELECT GET_LOCK(?, ${LONGEST_WAIT}) AS done`,
  afterWait: `SELECT IF(${isReadOnly}, ${READ_ONLY}, 1) AS done`,
  unlock: () => 'SELECT COALESCE(RELEASE_LOCK(?), 0) AS done',
});

const suffix = (mode: LockMode) => (mode === 'shared' ? '_shared' : '');

/** Advisory locks of Postgres, of the session. */
export const postgresAdvisoryLocks: AdvisoryStatements = {
  hasShared: true,
  async scopeOf(run) {
    const guard = firstRow(await run(`SELECT current_setting('idle_session_timeout', true) AS guard`))?.['guard'];
    if (typeof guard === 'string') return '';
    throw new LockConfigError(
      'Advisory locks need Postgres 14 or later, which frees the locks of a frozen process (idle_session_timeout): update the server, or use TypeOrmRowLockProvider.',
    );
  },
  nameOf: (_, namespace, key) => advisoryLockNumber(namespace, key),
  tryLock: (mode) => `SELECT pg_try_advisory_lock${suffix(mode)}($1::bigint) AS done`,
  joinReaders:
    `SELECT CASE WHEN EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted ` +
    `AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) ` +
    `AND (classid::bigint << 32) | objid::bigint = $1::bigint) ` +
    `THEN false ELSE pg_try_advisory_lock_shared($1::bigint) END AS done`,
  awaitLock: (mode) => `SELECT true AS done FROM pg_advisory_lock${suffix(mode)}($1::bigint)`,
  afterWait: 'SELECT 1 AS done',
  unlock: (mode) => `SELECT pg_advisory_unlock${suffix(mode)}($1::bigint) AS done`,
};
