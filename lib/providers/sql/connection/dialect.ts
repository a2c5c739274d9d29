import type { Diagnostic } from '../../../api/lock-provider.js';
import type { LockMode } from '../../../api/lock-mode.js';
import type { Run } from './answer.js';

/** Databases that share one dialect of SQL. */
export type DatabaseFamily = 'mysql' | 'postgres';

/** A statement and the values that it binds. */
export type Statement = readonly [sql: string, values: readonly unknown[]];

/** A driver's own connection: a Connection of mysql2, a Client of pg. */
export interface DriverConnection {
  on(event: 'error' | 'end', listener: (error?: unknown) => void): unknown;
}

/** A server, by its driver and the settings of a connection. */
export interface DriverSource<Database, Driver> {
  readonly database: Database;
  /** The settings are read at each connection, since a password may be rotated. */
  load(): Promise<{ readonly driver: Driver; readonly settings: object }>;
}

/** Sends a statement of the application when its turn has come. The first element of the result is the server's answer. */
export type SendStatement = <T extends readonly [unknown, ...unknown[]]>(send: () => Promise<T>) => Promise<T>;

/** @throws Error always */
export function refuseStream(): never {
  throw new Error(
    'Rows cannot be streamed in the transaction of a lock: nothing else could be sent until their end, not even the heartbeat of the lock. Read them in pages, or on another connection.',
  );
}

/**
 * A configuration as its driver reads it, with `ours` above and `defaults` below what it says. A copy would leave out the getters of a class,
 * and an object derived from it would call them without the private fields that they read.
 */
export function driverSettings(given: object, defaults: object, ours: object): object {
  // Drivers copy the properties that they find, and mysql2 adds those of an address.
  return new Proxy(
    { ...given, ...ours },
    {
      get: (own, name): unknown => Reflect.get(own, name) ?? Reflect.get(given, name) ?? Reflect.get(defaults, name),
    },
  );
}

/** Limits of a session, in ms. */
export interface TimeLimits {
  /** After how long a silence it ends the session. */
  readonly guard: number;
  /** For how long a statement waits for locks of others. */
  readonly lockWait: number;
}

/** How a session is set up. */
export interface SessionKind extends TimeLimits {
  /** Whether a statement outside of a transaction is one by itself. */
  readonly autocommit: boolean;
  /** Statements of the application that are sent first. */
  readonly initSql?: readonly string[];
}

/** The server's answers on a new connection. */
export interface ServerFacts {
  /** Identifies the server: different for any two servers. */
  readonly server: string;
  /** The statement that ends this connection from another one, whatever it waits for. Undefined behind a pooler, whose connections are shared. */
  readonly kill: string | undefined;
  /** The findings in the configuration of the server that weaken the guarantee. */
  readonly diagnostics: readonly Diagnostic[];
  /** Its one fault is that it takes no writes, which may change: it is a replica, or an operator has stopped them. */
  readonly refusesWrites: boolean;
  /**
   * Is true on a server that may not be written any more, so others may lock on another one. A statement that locks asks for it, as `read_only`.
   * `false` where the application allows such a server.
   */
  readonly isReadOnly: string;
  /** Whether the server may keep parsed statements for this connection. */
  readonly prepares: boolean;
  /** Whether a statement may catch an error (on Postgres, by the language plpgsql). */
  readonly catchesErrors: boolean;
  /** How many locks of all clients the server promises room for; undefined where that is not limited. */
  readonly lockTable: number | undefined;
  /** How many connections the server takes from all its clients. */
  readonly maxConnections: number;
}

/** What we know of a database without a connection: its spelling, the table of the locks, its advisory locks and its errors. */
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
  /** As `now`. A statement that reads it fails on a server that may not be written any more. */
  readonly nowOnWriter: string;
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
  /** A name in quotes. */
  readonly quoted: (name: string) => string;
  /** The statement that creates the table of the locks, whose name is quoted. */
  readonly createTable: (table: string) => string;
  /** Asks in which schema a table without one in its name, which is quoted, is or would be created: as `name`. */
  readonly schemaOf: (table: string) => Statement;
  /** Asks whether the table can keep locks, as `fits`. No row where the account may not see that. */
  readonly fits: (schema: string | undefined, name: string, quoted: string) => Statement;
  /** The views that show the locks of sessions to people. */
  readonly views: Readonly<Record<'row' | 'advisory', string>>;
  readonly advisory: AdvisoryStatements;
  /** The errors of the server, by the number or the characters that it gives. */
  readonly faults: Readonly<Record<Fault, readonly (number | string)[]>>;
}

/**
 * The reason why a statement failed.
 *
 * - `busy`: a lock that it needs is taken, or an operator has cancelled it while it waited.
 * - `rolled-back`: the server has undone the whole transaction (deadlock), so its locks are gone.
 * - `no-savepoint`: the savepoint that was released does not exist.
 * - `no-table`: the table does not exist.
 * - `other-table`: it has other columns, or no primary key.
 * - `no-database`: the database does not exist, or the account may not use it.
 * - `login`: no such account, or one that is locked, or a wrong or expired password.
 * - `read-only`: the server takes no writes.
 * - `refused`: the server would refuse it again for another reason, such as a missing privilege.
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
 * A statement about several locks. The answer has a row for each, in their order, with the outcome as `done`: NULL where the server does not
 * know. If `isReadOnly` is given, the first row has it as `read_only`. The same operation is the same function.
 */
export type OfMany = (names: readonly string[], isReadOnly?: string) => Statement;

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

/** How we reach one kind of server, and what we can do on a connection to it. */
export interface Dialect {
  connect(): Promise<DriverConnection>;
  /** Sends one statement over the driver's own connection, so that no subscriber or logger of the application is notified. */
  send(connection: DriverConnection, sql: string, parameters: readonly unknown[], prepares?: boolean): Promise<unknown>;
  /** Prepares a new connection: READ COMMITTED, and the time limits of its kind. */
  setUp(connection: DriverConnection, run: Run, kind: SessionKind): Promise<ServerFacts>;
  /** Begins a transaction with a statement of one value, in one round trip, on a session without autocommit. */
  beginWith(connection: DriverConnection, sql: string, value: string): Promise<unknown>;
  /** As {@link beginWith}, by a SELECT that waits for a lock within these limits. Without the lock it answers no rows, or an error. */
  beginWait(
    connection: DriverConnection,
    select: string,
    value: string,
    limits: TimeLimits,
    facts: ServerFacts,
  ): Promise<unknown>;
  /** Undoes whatever the application has set on a connection. It has to be set up again. */
  reset(connection: DriverConnection): Promise<unknown>;
  /** Sets other limits: those of the session, or on Postgres those of the transaction that is open. Asks as a heartbeat does. */
  setLimits(limits: TimeLimits, inTransaction: boolean, isReadOnly: string): string;
  /** How long one statement may wait for a lock, in ms: a multiple of `unit`, up to `longest`. Without the lock it is answered up to `late` later. */
  readonly slice: { readonly unit: number; readonly longest: number; readonly late: number };
  /** Whether a read-only server refuses every account the SELECT that locks a row. */
  readonly refusesRowLocks: boolean;
  /** Follows the SELECT that locks a row. */
  forMode(mode: LockMode): string;
  /** The same statement, which does not wait for locks of others, if the server can do that for one statement. */
  readonly withoutWait: (sql: string) => string;
  /**
   * Asks of the connection that it answers, and whether the server is read-only by {@link ServerFacts.isReadOnly}: the answer says so as `read_only`,
   * or is an error.
   */
  heartbeat(isReadOnly: string, isLent: boolean): string;
  /** Whether the server itself has sent this error, so it has received the statement. */
  isAnswer(error: unknown): boolean;
  /**
   * Whether the connection is in a transaction, as the server reported with its last answer, which is `answer`; undefined where it
   * did not report.
   */
  isInTransaction(connection: DriverConnection, answer: unknown): boolean | undefined;
  /**
   * The connection as a QueryRunner of TypeORM uses it, for statements of the application. Each passes through `statement`, which
   * sends it in its turn and looks at the answer. One whose rows are streamed is refused.
   */
  lend(connection: DriverConnection, statement: SendStatement): object;
  /** For how many ms the server has been running; `Infinity` where {@link ServerFacts.kill} recognizes a connection by more than its id. */
  uptime(run: Run): Promise<number>;
  /** Closes the connection as the server expects it, so it counts no aborted client. */
  close(connection: DriverConnection): Promise<void>;
  /** Closes the socket without notifying the server. */
  sever(connection: DriverConnection): unknown;
}

// After how much waiting for a lock a slice of the wait has half of its greatest length, in ms.
const HALF_LENGTH_AFTER = 5_000;

/**
 * For how many ms a statement waits for a lock whose caller has waited for `waited` ms.
 *
 * A wait at the server is made of slices. In a long statement a session of Postgres has a snapshot, so that VACUUM removes nothing and CREATE
 * INDEX CONCURRENTLY does not end; and while a statement waits, no server notices that its client is gone. Each slice begins at the end of
 * the server's queue. So they grow: a caller that has waited for longer is less often at the end, and more often at the head. With equal slices,
 * the last caller that came is among the next ones that get the lock. Measured, eight processes that hold it for 0.4 s: the longest wait was 8
 * to 9 s with equal slices, 4.5 to 4.9 s with these, and would be 2.8 s in turn.
 */
export function sliceLength({ unit, longest }: Dialect['slice'], waited: number): number {
  const share = waited / (waited + HALF_LENGTH_AFTER);
  return unit * Math.max(1, Math.ceil((share * longest) / unit));
}
