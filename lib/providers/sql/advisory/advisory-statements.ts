import { LockConfigError } from '../../../api/errors.js';
import type { LockMode } from '../../../api/lock-mode.js';
import { firstRow, isTrue, type Run, textOf } from '../connection/answer.js';
import type { ServerFacts, TimeLimits } from '../connection/dialect.js';
import { waitQuietly } from '../connection/postgres-dialect.js';
import { advisoryLockNumber, userLockName } from './advisory-name.js';

/**
 * A statement about several locks, with the values that it binds. It resolves to a row for each, in their order: see {@link doneOf}. The first
 * row has `isReadOnly`, if that is given, as `read_only`. The same operation is the same function.
 */
export type OfMany = (names: readonly string[], isReadOnly?: string) => Statement;

type Statement = readonly [sql: string, values: readonly unknown[]];

/** How one database spells its advisory locks. */
export interface AdvisoryStatements {
  /** The part of the names beside namespace and key. @throws LockConfigError on a server that is too old. */
  scopeOf(run: Run): Promise<string>;
  nameOf(scope: string, namespace: string, key: string): string;
  /** Takes those that are free. A session that has one gets it once more: it never blocks itself. */
  tryLock(mode: LockMode): OfMany;
  /** Takes shared locks once more on a session that has them, unless a waiter is queued, which that would overtake. */
  readonly joinReaders: OfMany;
  unlock(mode: LockMode): OfMany;
  /** Waits for one slice, and takes the lock if it is free then. */
  awaitLock(name: string, mode: LockMode, limits: TimeLimits, facts: ServerFacts): Statement;
  /** Frees whatever the session has. */
  readonly unlockAll: string;
}

/** Of each lock, whether the statement succeeded. @throws Error when the server does not know (GET_LOCK: NULL) */
export function doneOf(answer: unknown): readonly boolean[] {
  return (answer as readonly Readonly<Record<'done', unknown>>[]).map(({ done }) => {
    if (done === null || done === undefined) throw new Error('The server does not know whether the lock is free.');
    return isTrue(done);
  });
}

const question = (isReadOnly: string | undefined) => (isReadOnly === undefined ? '' : `, ${isReadOnly} AS read_only`);

/** The same SELECT for each name. */
const forEach =
  (expression: string): OfMany =>
  ([first = '', ...others], isReadOnly) => {
    const [one, asked, other] = [`SELECT ${expression} AS done`, question(isReadOnly), question(isReadOnly && 'false')];
    return [`${one}${asked}${` UNION ALL ${one}${other}`.repeat(others.length)}`, [first, ...others]];
  };

const tryUserLock = forEach('GET_LOCK(?, 0)');
const unlockUserLock = forEach('COALESCE(RELEASE_LOCK(?), 0)');

/** `GET_LOCK` of MySQL and MariaDB. */
export const userLocks: AdvisoryStatements = {
  async scopeOf(run) {
    return textOf(firstRow(await run('SELECT DATABASE() AS name'))?.['name']) ?? '';
  },
  nameOf: userLockName,
  tryLock: () => tryUserLock,
  joinReaders: tryUserLock,
  unlock: () => unlockUserLock,
  awaitLock: (name, _, { lockWait }) => [`SELECT GET_LOCK(?, ${Math.ceil(lockWait / 1_000)}) AS done`, [name]],
  unlockAll: 'SELECT RELEASE_ALL_LOCKS()',
};

/** An expression about a lock, for each of a list of them, whose elements come in their order. */
const ofEach =
  (expressionOf: (n: string) => string): OfMany =>
  (names, isReadOnly) =>
    names.length === 1
      ? [`SELECT ${expressionOf('$1::bigint')} AS done${question(isReadOnly)}`, names]
      : [
          `SELECT ${expressionOf('n')} AS done${question(isReadOnly && `(SELECT ${isReadOnly})`)} FROM unnest($1::bigint[]) AS n`,
          [names],
        ];

const calling = (name: string) => ofEach((n) => `${name}(${n})`);

const byMode = (exclusive: OfMany, shared: OfMany) => (mode: LockMode) => (mode === 'shared' ? shared : exclusive);

/** Advisory locks of Postgres, of the session. */
export const postgresAdvisoryLocks: AdvisoryStatements = {
  async scopeOf(run) {
    const guard = firstRow(await run(`SELECT current_setting('idle_session_timeout', true) AS guard`))?.['guard'];
    if (typeof guard === 'string') return '';
    throw new LockConfigError(
      'Advisory locks need Postgres 14 or later, which frees the locks of a frozen process (idle_session_timeout): update the server, or use TypeOrmRowLockProvider.',
    );
  },
  nameOf: (_, namespace, key) => advisoryLockNumber(namespace, key),
  tryLock: byMode(calling('pg_try_advisory_lock'), calling('pg_try_advisory_lock_shared')),
  joinReaders: ofEach(
    (n) =>
      `CASE WHEN EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted ` +
      `AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) ` +
      `AND (classid::bigint << 32) | objid::bigint = ${n}) THEN false ELSE pg_try_advisory_lock_shared(${n}) END`,
  ),
  unlock: byMode(calling('pg_advisory_unlock'), calling('pg_advisory_unlock_shared')),
  // A lock of the transaction, which ends with the message. In between, the session takes the lock itself.
  awaitLock(name, mode, limits, { catchesErrors }) {
    // Several statements in one message cannot have bound values.
    const number = `'${BigInt(name)}'`;
    const suffix = mode === 'shared' ? '_shared' : '';
    const wait = waitQuietly(`SELECT pg_advisory_xact_lock${suffix}($1::bigint)`, number, limits, catchesErrors);
    return [`${wait}; SELECT pg_try_advisory_lock${suffix}(${number}::bigint) AS done`, []];
  },
  unlockAll: 'SELECT pg_advisory_unlock_all()',
};
