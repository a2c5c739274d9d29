import type { Diagnostic } from '../../../api/lock-provider.js';
import type { LockMode } from '../../../api/lock-mode.js';
import type { Run } from './answer.js';

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

/** How one kind of server is reached, and how it spells the statements of the locks. */
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
  /** Whether a savepoint did not exist when it was released. */
  isNoSavepoint(error: unknown): boolean;
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
  sever(connection: DriverConnection): void;
}
