import type { EventEmitter } from 'node:events';
import type { LockMode } from '../../lock/lock-options.js';

/** A driver's own connection: a PoolConnection of mysql2, a Client of pg. */
export interface DriverConnection {
  on(event: 'error' | 'end', listener: (error?: unknown) => void): unknown;
  removeListener(event: 'error' | 'end', listener: (error?: unknown) => void): unknown;
}

/** Sends a statement of the application when it is its turn. It answers the server's answer first. */
export type SendStatement = <T extends readonly [unknown, ...unknown[]]>(send: () => Promise<T>) => Promise<T>;

/** Opens a stream of rows of the application. Until this event of it, or `error`, no other statement may be sent. */
export type OpenStream = <T extends EventEmitter>(open: () => T, endsWith: string) => T;

/** Runs one statement with bound values and answers its rows, or the driver's summary where it has none. */
export type Run = (sql: string, parameters?: readonly unknown[]) => Promise<unknown>;

/**
 * What became of a statement that failed.
 *
 * - `busy`: a row that it needs is locked.
 * - `rolled-back`: the server has undone the whole transaction (deadlock); its locks are gone.
 * - `no-table`: the lock table does not exist.
 * - `other`: refused, or the connection is gone.
 */
export type Failure = 'busy' | 'rolled-back' | 'no-table' | 'other';

/** How one database spells what the lock needs. Every statement takes the name of one row as its only value. */
export interface Dialect {
  /**
   * Sends one statement over the driver's own connection. The application's subscribers are told of no statement of ours; of
   * transactions TypeORM tells them all the same.
   */
  send(connection: DriverConnection, sql: string, parameters: readonly unknown[]): Promise<unknown>;
  /**
   * Prepares a new connection: READ COMMITTED, and the session guard of `guard` ms, after which the server frees the
   * locks of a holder that is silent; statements wait for `lockWait` ms for locks of others. Answers the statement that ends this
   * connection, whatever it does or waits for, when it is sent on another one.
   */
  setUp(run: Run, guard: number, lockWait: number): Promise<string>;
  /** Locks the row if it exists and is free, and answers no row otherwise. It never waits and never fails as busy. */
  tryLock(mode: LockMode): string;
  /** Locks the row as soon as it is free. Answers no row only if there is none. */
  awaitLock(mode: LockMode): string;
  readonly findRow: string;
  /** Makes the row unless it exists. Fails as busy if somebody holds it, who then must have made it. */
  readonly createRow: string;
  /** Increases the counter in the row and answers it; undefined if there is no such row. */
  nextToken(run: Run, name: string): Promise<bigint | undefined>;
  /** Asks of the connection only that it answers. */
  readonly heartbeat: string;
  readonly findTable: string;
  readonly createTable: string;
  classify(error: unknown): Failure;
  /** Whether the server itself has answered with this error, so that it has heard of us. */
  isAnswer(error: unknown): boolean;
  /** Whether a savepoint was not there to be released. */
  isNoSavepoint(error: unknown): boolean;
  /**
   * Whether the connection is in a transaction, as the server said with its last answer, which is `answer`; undefined where it
   * did not say.
   */
  isInTransaction(connection: DriverConnection, answer: unknown): boolean | undefined;
  /**
   * The connection as a QueryRunner of TypeORM uses it, for statements of the application. Each passes through `statement`, which
   * sends it in its turn and looks at the answer; one whose rows are streamed, through `stream`.
   */
  lend(connection: DriverConnection, statement: SendStatement, stream: OpenStream): object;
  /** Closes the connection without a farewell. */
  sever(connection: DriverConnection): void;
  /** What in the server's configuration weakens the guarantee, seen over two connections. */
  examine(one: Run, other: Run): Promise<readonly Weakness[]>;
}

export interface Weakness {
  readonly severity: 'warning' | 'error';
  readonly message: string;
}

/** The error of the driver beneath one of TypeORM, without the statement and its values. */
export function driverErrorOf(error: unknown): unknown {
  return error instanceof Error && 'driverError' in error ? error.driverError : error;
}

/** The first row of an answer, if there is one. */
export function firstRow(answer: unknown): Readonly<Record<string, unknown>> | undefined {
  return Array.isArray(answer) ? (answer[0] as Readonly<Record<string, unknown>> | undefined) : undefined;
}

/** The property of an object of which nothing is known. */
export function propertyOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>)[name] : undefined;
}
