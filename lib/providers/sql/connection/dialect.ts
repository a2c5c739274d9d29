import type { LockMode } from '../../../api/lock-mode.js';
import type { Run } from './answer.js';

/** Databases that share one SQL dialect. */
export type DatabaseFamily = 'mysql' | 'postgres';

/** A statement and its bound values. */
export type Statement = readonly [sql: string, values: readonly unknown[]];

/** A driver's connection: a mysql2 Connection or a pg Client. */
export interface DriverConnection {
  on(event: 'error' | 'end', listener: (error?: unknown) => void): unknown;
}

/**
 * A database server to which we open our own connections, because all connections in the application's pool may be
 * waiting for locks.
 */
export interface SqlSource {
  readonly database: DatabaseFamily;
  /** Loads the driver's module. Settings are read for each connection, because a password may be rotated. */
  load(): Promise<{ readonly driver: unknown; readonly settings: object }>;
}

/** Sends one of the application's statements when its turn comes. The result's first element is the server's answer. */
export type SendStatement = <T extends readonly [unknown, ...unknown[]]>(send: () => Promise<T>) => Promise<T>;

export type Callback = (error: Error | null, ...answer: unknown[]) => unknown;

/** A driver's `query(sql, values?, callback?)`. Without a callback, `otherwise` is called instead of `send`. */
export function withCallback(
  send: (sql: unknown, values: unknown) => Promise<readonly unknown[]>,
  otherwise: (sql: unknown, values: unknown) => unknown,
) {
  return (sql: unknown, values: unknown, callback?: Callback): unknown => {
    const [given, done] = typeof values === 'function' ? [undefined, values as Callback] : [values, callback];
    return done ? send(sql, given).then((answer) => done(null, ...answer), done) : otherwise(sql, given);
  };
}

/** @throws Error always */
export function refuseStream(): never {
  throw new Error(
    "Rows cannot be streamed in a lock's transaction, because a stream would block the heartbeat. Read the rows in pages or on another connection.",
  );
}

/**
 * The settings that a driver reads: `ours`, then the given configuration, then `defaults`. A copy would lose a class's
 * getters, and a derived object would call them without the private fields that they read.
 */
export function driverSettings(given: object, defaults: object, ours: object): object {
  // Drivers copy the properties they enumerate; mysql2 adds those from a URL.
  return new Proxy(
    { ...given, ...ours },
    {
      get: (own, name): unknown => Reflect.get(own, name) ?? Reflect.get(given, name) ?? Reflect.get(defaults, name),
    },
  );
}

/** A session's time limits, in ms. */
export interface TimeLimits {
  /** How long the session may be silent before the server ends it. */
  readonly guard: number;
  /** How long a statement may wait for locks. */
  readonly lockWait: number;
}

/** A session's setup. */
export interface SessionKind extends TimeLimits {
  /** Whether each statement outside a transaction commits automatically. */
  readonly autocommit: boolean;
  /** Application statements to send first. */
  readonly initSql?: readonly string[];
}

/** Facts that the server reports on a new connection. */
export interface ServerFacts {
  /** Identifies the server uniquely. */
  readonly server: string;
  /**
   * The statement with which another session can end this one, even while it waits. Undefined behind a pooler, where
   * connections are shared.
   */
  readonly kill: string | undefined;
  /** Configuration problems that weaken the guarantee. */
  readonly unsafe: readonly string[];
  /** Why the server rejects writes, perhaps temporarily: it is a replica, or an operator disabled writes. */
  readonly readOnly: readonly string[];
  /**
   * An SQL condition that is true on a server that may no longer accept writes, so other clients may be using another
   * one. Locking statements select it as `read_only`. `false` if the application allows such servers.
   */
  readonly isReadOnly: string;
  /** Whether prepared statements may be used on this connection. */
  readonly prepares?: boolean;
  /** Whether a statement can catch errors (on Postgres, with plpgsql). */
  readonly catchesErrors?: boolean;
  /** The capacity of the server's lock table for all clients; unlimited if omitted. */
  readonly lockTable?: number;
  /** The maximum number of connections across all clients. */
  readonly maxConnections: number;
}

/**
 * What is known about a kind of database without connecting: its SQL, lock table, advisory locks, and error codes.
 */
export interface Family {
  /** @param inSessions whether locks belong to sessions, which a pooler would share with other clients */
  readonly dialectFor: (source: SqlSource, connectTimeout: number, inSessions: boolean) => Dialect;
  /** The placeholder for the bound value at this position, starting at 1. */
  readonly value: (position: number) => string;
  /**
   * A condition that a column has one of `count` values, bound from this position on in the form that `list` returns.
   */
  readonly isAmong: (column: string, position: number, count: number) => string;
  readonly list: (values: readonly unknown[]) => readonly unknown[];
  /**
   * The database's time in µs since 1970, evaluated once per statement, after it was sent. With two evaluations, a
   * statement could find a lease expired and yet renew it. In UTC, because local time repeats an hour when daylight
   * saving time ends.
   */
  readonly now: string;
  /** Like `now`, but a statement that uses it fails on a server that may no longer accept writes. */
  readonly nowOnWriter: string;
  /**
   * An INSERT of a name and a label that sets the time of last use to now. Does nothing if the row exists, and doesn't
   * wait for a transaction that has locked it.
   */
  readonly insertKey: (table: string) => string;
  /** An UPDATE of one row that sets `token` to this expression. The answer contains the new token. */
  readonly updateToken: (table: string, expression: string, rest: string) => string;
  /** Reads the token from the result of such a statement; undefined if no row was updated. */
  readonly tokenOf: (answer: unknown) => bigint | undefined;
  /**
   * A DELETE of rows with one of `count` names (bound in the form that `list` returns) that meet the condition and are
   * not locked. It neither locks nor waits for any other row. As a single autocommitted statement, it leaves nothing
   * locked if the client freezes or is cut off.
   */
  readonly deleteUnlocked: (table: string, condition: string, count: number) => string;
  /** The number of rows that a statement changed. */
  readonly changed: (answer: unknown) => number;
  /** The function that finds one string in another. */
  readonly positionOf: string;
  readonly join: (...texts: readonly string[]) => string;
  /** Converts an integer to text. */
  readonly asText: (number: string) => string;
  /** Quotes an identifier. */
  readonly quoted: (name: string) => string;
  /** The statement that creates the lock table, given its quoted name. */
  readonly createTable: (table: string) => string;
  /** Selects, as `name`, the schema in which an unqualified (quoted) table exists or would be created. */
  readonly schemaOf: (table: string) => Statement;
  /** Selects, as `fits`, whether the table can store locks. Returns no row if the account may not see that. */
  readonly fits: (schema: string | undefined, name: string, quoted: string) => Statement;
  /** The views that show session locks to operators. */
  readonly views: Readonly<Record<'row' | 'advisory', string>>;
  readonly advisory: AdvisoryStatements;
  /** The server's error codes. */
  readonly faults: Readonly<Record<Fault, readonly (number | string)[]>>;
}

/**
 * Why a statement failed. *
 * - `busy`: a required lock is taken, or an operator canceled the wait for it.
 * - `rolled-back`: the server rolled back the whole transaction (deadlock), so its locks are gone.
 * - `no-savepoint`: the savepoint to release doesn't exist.
 * - `no-table`: the table doesn't exist.
 * - `other-table`: the table has different columns, or no primary key.
 * - `no-database`: the database doesn't exist, or the account may not use it.
 * - `login`: the account doesn't exist or is locked, or the password is wrong or expired.
 * - `read-only`: the server rejects writes.
 * - `refused`: the server would reject the statement again for another reason, such as a missing privilege.
 */
export type Fault =
  | 'busy'
  | 'rolled-back'
  | 'no-savepoint'
  | 'no-table'
  | 'other-table'
  | 'no-database'
  | 'login'
  | 'read-only'
  | 'refused';

/**
 * A statement for several locks. Returns a row for each, in order, with the outcome as `done`: NULL if the server
 * doesn't know. If `isReadOnly` is given, the first row contains it as `read_only`. The function for an operation never
 * changes.
 */
export type OfMany = (names: readonly string[], isReadOnly?: string) => Statement;

/** A database's advisory lock statements. */
export interface AdvisoryStatements {
  /** A part of every lock name, besides the namespace and key. @throws LockConfigError if the server is too old */
  scopeOf(run: Run): Promise<string>;
  nameOf(scope: string, namespace: string, key: string): string;
  /**
   * Acquires the locks that are free. A session that already holds one acquires it again, because it never blocks
   * itself.
   */
  tryLock(mode: LockMode): OfMany;
  /** Acquires shared locks again on a session that holds them, unless that would overtake a waiter. */
  readonly joinReaders: OfMany;
  unlock(mode: LockMode): OfMany;
  /** Waits for one slice, and acquires the lock if it becomes free. */
  awaitLock(name: string, mode: LockMode, limits: TimeLimits, facts: ServerFacts): Statement;
  /** Frees all of the session's locks. */
  readonly unlockAll: string;
}

/** Defines how to connect to one kind of server, and what can be done on a connection. */
export interface Dialect {
  connect(): Promise<DriverConnection>;
  /** Sends a statement directly on the driver's connection, bypassing the application's subscribers and loggers. */
  send(connection: DriverConnection, sql: string, parameters: readonly unknown[], prepares?: boolean): Promise<unknown>;
  /** Prepares a new connection: sets READ COMMITTED and time limits. */
  setUp(connection: DriverConnection, run: Run, kind: SessionKind): Promise<ServerFacts>;
  /**
   * Begins a transaction and runs a statement with one value in the same round trip. For sessions without autocommit.
   */
  beginWith(connection: DriverConnection, sql: string, value: string): Promise<unknown>;
  /**
   * Like {@link beginWith}, but with a SELECT that waits for a lock within these limits. If the lock isn't acquired, it
   * returns no rows or an error.
   */
  beginWait(
    connection: DriverConnection,
    select: string,
    value: string,
    limits: TimeLimits,
    facts: ServerFacts,
  ): Promise<unknown>;
  /** Undoes whatever the application has set on a connection, which must then be set up again. */
  reset(connection: DriverConnection): Promise<unknown>;
  /**
   * Changes the limits of the session or, on Postgres, of the open transaction. Also performs a heartbeat's checks.
   */
  setLimits(limits: TimeLimits, inTransaction: boolean, isReadOnly: string): string;
  /**
   * How long one statement may wait for a lock, in ms: a multiple of `unit`, up to `longest`. A failure may be reported
   * up to `late` ms later.
   */
  readonly slice: { readonly unit: number; readonly longest: number; readonly late: number };
  /**
   * A SELECT that locks one row, given its FROM clause. Like {@link heartbeat}, it returns `read_only`, unless a
   * read-only server rejects it for every account.
   */
  lockRow(from: string, mode: LockMode, isReadOnly: string): string;
  /** Keeps a statement from waiting for locks, if the server supports that for a single statement. */
  readonly withoutWait: (sql: string) => string;
  /**
   * Checks that the connection works, and that the server is not read-only ({@link ServerFacts.isReadOnly}): if it is,
   * the answer's `read_only` is true, or the check fails.
   */
  heartbeat(isReadOnly: string, isLent: boolean): string;
  /** Whether the error came from the server itself, so the server received the statement. */
  isAnswer(error: unknown): boolean;
  /**
   * Whether any error immediately frees the locks that a transaction has taken since its last savepoint. Without a
   * savepoint, all are free, although the transaction stays open until it is rolled back.
   */
  readonly abortsOnError: boolean;
  /**
   * Whether the connection is in a transaction, according to the server's last answer, `answer`; undefined if not
   * reported.
   */
  isInTransaction(connection: DriverConnection, answer: unknown): boolean | undefined;
  /**
   * The connection in the form that TypeORM's QueryRunner uses, for the application's statements. Each passes through
   * `statement`, which sends it in turn and checks the answer. Row streaming is rejected.
   */
  lend(connection: DriverConnection, statement: SendStatement): object;
  /** The server's uptime in ms; `Infinity` if {@link ServerFacts.kill} identifies a connection by more than its id. */
  uptime(run: Run): Promise<number>;
  /** Closes the connection gracefully, so the server doesn't count it as an aborted client. */
  close(connection: DriverConnection): Promise<void>;
  /** Closes the socket without notifying the server. */
  sever(connection: DriverConnection): unknown;
}

// The total wait, in ms, after which a slice has half its maximum length.
const HALF_LENGTH_AFTER = 5_000;

/**
 * How long a statement waits for a lock, in ms, if the caller has already waited `waited` ms.
 *
 * A wait on the server consists of slices. During a long statement, a Postgres session holds a snapshot that prevents
 * VACUUM from removing rows and CREATE INDEX CONCURRENTLY from finishing. Also, servers don't notice during a wait that
 * their client is gone. But each slice starts at the end of the server's queue. Slices therefore grow, so a caller that
 * has waited longer goes to the back of the queue less often. With equal slices, the latest arrival is among the next
 * to get the lock. With eight processes that each held the lock for 0.4 s, the longest measured wait was 8 to 9 s with
 * equal slices and
 * 4.5 to 4.9 s with these; in strict order, it would be 2.8 s.
 */
export function sliceLength({ unit, longest }: Dialect['slice'], waited: number): number {
  const share = waited / (waited + HALF_LENGTH_AFTER);
  return unit * Math.max(1, Math.ceil((share * longest) / unit));
}
