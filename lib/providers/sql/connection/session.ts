import { AsyncResource } from 'node:async_hooks';
import type { Timer } from '../../../api/clock.js';
import type { RenewOutcome } from '../../../api/lock-provider.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import { firstRow, isTrue, type Row, type Run } from './answer.js';
import {
  type DriverConnection,
  type SendStatement,
  type ServerFacts,
  type SessionKind,
  sliceLength,
  type TimeLimits,
} from './dialect.js';
import { faultOf, inTime, silentFor } from './failure.js';
import type { Server } from './server.js';

/** A statement that was not sent. */
export class TransactionEndedError extends Error {
  constructor() {
    super('The transaction of the lock has ended: this statement was not run.');
  }
}

// How long the server keeps a lock that a waiter was granted and does not answer for, in ms: the waiter may be frozen or cut off.
const CONFIRM_WITHIN = 3_000;

/** How a statement is sent, and for how long it is waited for. */
interface StatementLimits {
  /** Whether it may be sent only while the transaction lasts: a statement of the application, or the end of the transaction. Default false. */
  readonly inTransaction?: boolean;
  /** How long the server may work on it by itself, in ms. Default 0. */
  readonly answeredWithin?: number;
  /** After how many ms its caller is told that the server is silent. Default: never. */
  readonly timeout?: number | undefined;
}

/** A statement, from its request to its answer. */
interface QueuedStatement {
  /** Undefined where its turn is all that is waited for. */
  readonly send: (() => Promise<unknown>) | undefined;
  readonly limits: StatementLimits;
  resolve: (answer?: unknown) => void;
  reject: (error: unknown) => void;
  timer?: Timer;
}

/**
 * One connection of our own. It serves one attempt after the other, or the locks of several; it has at most one transaction, and is used
 * again only when nothing is left on it. In any doubt it is destroyed, and the server frees what it has.
 *
 * Statements run one after the other. Whether the transaction still exists is what the server reports in its answers.
 */
export class Session {
  /** When the last statement that the server has answered was sent, on the monotonic clock. */
  answered = -Infinity;
  /** Called once when the connection or its transaction ends before we end it. */
  onLost: ((cause: unknown) => void) | undefined;
  /** Called at the end of each use: with whether it can be used again. */
  onFree: ((isReusable: boolean) => void) | undefined;
  #state: 'open' | 'lost' | 'ended' = 'open';
  /** We have begun a transaction, and have not ended it. */
  #hasTransaction = false;
  /** How many statements are in flight, of ours and of the application: sent, or waiting for that. */
  inFlight = 0;
  /** The statement that is at the server. */
  #current: QueuedStatement | undefined;
  /** The server's answer that this statement has failed, while the server is asked what that has ended. */
  #failure: unknown;
  /** The statements behind it. */
  readonly #queue: QueuedStatement[] = [];
  /** Of a statement that waits for nothing. */
  readonly #atOnce: StatementLimits;
  /** A statement was not answered in time, and none since. */
  isSilent = false;
  /** When the answer of the statement that is at the server is due, on the monotonic clock. */
  #dueAt: number | undefined;
  #heartbeat: Promise<void> | undefined;
  /** The application may have left something on the connection. */
  #isLent = false;

  /** @param control the session that ends this one on the server's side; none for that session itself */
  constructor(
    readonly home: Server,
    private readonly connection: DriverConnection,
    readonly facts: ServerFacts,
    readonly control: Session | undefined,
    readonly kind: SessionKind,
    /** When it was being opened, on the monotonic clock. */
    readonly openedAt: number,
  ) {
    this.answered = openedAt;
    this.#atOnce = { timeout: home.commandTimeout };
    for (const event of ['error', 'end'] as const) connection.on(event, this.lose);
  }

  /** The connection or its transaction has ended before we ended it. */
  isLost(): boolean {
    return this.#state === 'lost';
  }

  /** For how many ms an answer is overdue. */
  get overdueFor(): number {
    return this.#dueAt === undefined ? 0 : Math.max(0, this.home.clock.now() - this.#dueAt);
  }

  /** Runs a statement that waits for nothing. @throws SilentServerError when the server does not answer in time */
  readonly run: Run = (sql, parameters) => this.#inTurn(() => this.sendNow(sql, parameters), this.#atOnce);

  /** Sends a statement whose turn it is. */
  sendNow(sql: string, parameters: readonly unknown[] = []): Promise<unknown> {
    return this.home.dialect.send(this.connection, sql, parameters, this.facts.prepares);
  }

  /** The connection as the application uses it, see {@link Dialect.lend}. */
  lend(statement: SendStatement): object {
    this.#isLent = true;
    return this.home.dialect.lend(this.connection, statement);
  }

  /** Begins a transaction with a statement of one value, in one round trip, and resolves to its row. For sessions without autocommit. */
  async beginWith(sql: string, value: string): Promise<Row | undefined> {
    const answer = await this.#inTurn(() => this.home.dialect.beginWith(this.connection, sql, value), this.#atOnce);
    this.#hasTransaction = true;
    return firstRow(answer);
  }

  /**
   * As {@link beginWith}, by a SELECT that waits for a lock on behalf of a caller that has come at `since`. Resolves to its row, which is
   * to be confirmed by {@link endWait}; or, when its slice is over, to undefined, with no transaction.
   */
  async beginSlice(select: string, value: string, since: number): Promise<Row | undefined> {
    const answer = await this.#slice(since, (limits) =>
      this.home.dialect.beginWait(this.connection, select, value, limits, this.facts),
    );
    this.#hasTransaction = true;
    const row = firstRow(answer);
    if (!row) await this.rollback();
    return row;
  }

  /** Before the first {@link runSlice}: what is granted and not confirmed by {@link endWait} is freed soon. */
  async beginWait(): Promise<void> {
    await this.#setLimits(this.#whileWaiting(this.kind.lockWait));
  }

  /**
   * Runs a statement in autocommit that waits for a lock on behalf of a caller that has come at `since`. Resolves to undefined when it was
   * ended: it may have the lock nevertheless.
   */
  runSlice(since: number, statement: (limits: TimeLimits) => readonly [sql: string, values: readonly unknown[]]) {
    return this.#slice(since, (limits) => this.sendNow(...statement(limits)));
  }

  /** Confirms a lock that was waited for. Its validity begins here: the last answer before was that to a statement sent before the wait. */
  async endWait(): Promise<void> {
    await this.#setLimits(this.kind);
  }

  /** Asks by a new statement whether the connection answers, and the server may still be written. @throws LockConfigError when it may not */
  async confirm(): Promise<void> {
    await this.run(this.#heartbeatSql);
  }

  /** Commits what was written in the transaction, and frees its locks. It may take as long as silence may last: a synchronous standby may lag. */
  async commit(): Promise<void> {
    await this.#endTransaction('COMMIT', this.kind.guard);
  }

  async rollback(): Promise<void> {
    if (this.#hasTransaction) await this.#endTransaction('ROLLBACK', this.home.commandTimeout);
  }

  /** Sends a statement in the transaction. @throws Error when that has ended; then the statement was not sent. */
  inTransaction<T>(statement: () => Promise<T>): Promise<T> {
    // After the end of the transaction the server would commit it by itself, without the lock.
    return this.#inTurn(statement, { inTransaction: true });
  }

  /** Resolves when what is in flight now was answered. @throws SilentServerError when that takes longer than `timeout` ms; by default never */
  async idle(timeout?: number): Promise<void> {
    await this.#inTurn(undefined, { timeout });
  }

  /** Ends this use of the session, with no transaction open and no lock held. */
  giveBack(): void {
    // A statement that the application has not awaited would run in another transaction, and one that the server has not answered
    // may still take a lock.
    if (this.#state !== 'open' || this.inFlight > 0 || this.#hasTransaction) this.destroy();
    else if (this.#isLent) this.#reset();
    else this.#free(true);
  }

  /** Until when the locks on it are surely ours. */
  get validUntil(): number {
    return validUntil(this.answered, this.kind.guard);
  }

  /**
   * Renews the locks on it, by a heartbeat. Behind another statement that would only queue, so the server is asked by its control session.
   * While that statement runs the guard does not; but if its answer is on a wire that is cut, the server may have finished it long ago, so it
   * extends nothing before it is answered.
   */
  async renew(): Promise<RenewOutcome> {
    if (this.isLost()) return 'lost';
    const isBusy = this.inFlight > 0 && !this.#heartbeat;
    try {
      await (isBusy ? this.home.confirmWriter() : this.beat());
    } catch {
      return this.isLost() ? 'lost' : 'unknown';
    }
    if (this.isLost()) return 'lost';
    if (isBusy && this.home.clock.now() - this.answered > this.kind.guard / 3) return 'unknown';
    return { validUntil: this.validUntil };
  }

  /** The connection or its transaction has ended, or the server holds no locks any more. */
  readonly lose = (cause?: unknown): void => {
    if (this.#state !== 'open') return;
    this.#state = 'lost';
    this.#hasTransaction = false;
    // A statement in flight is not answered any more.
    this.#abandon(new Error('The session has been lost.', { cause }));
    try {
      this.onLost?.(cause);
    } finally {
      this.#sendNext();
    }
  };

  /**
   * Ends the connection, its transaction and its wait on both sides. A socket that is closed is not enough: a server that waits for a
   * lock on our behalf does not look at it, and would be granted the lock; and where a reset has reached our side alone, the server
   * would keep our locks until the end of the session guard.
   */
  readonly destroy = (): void => {
    if (this.#state === 'ended') return;
    if (this.control) this.home.endOnServer(this, this.control);
    this.home.dialect.sever(this.connection);
    this.#end();
  };

  /** Ends the connection as the server expects it: otherwise it counts and logs an aborted client. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#end();
    const { clock, dialect, commandTimeout } = this.home;
    await inTime(clock, commandTimeout, dialect.close(this.connection)).catch(() => dialect.sever(this.connection));
  }

  #endTransaction(word: 'COMMIT' | 'ROLLBACK', timeout: number): Promise<unknown> {
    const end = () => {
      this.#hasTransaction = false;
      return this.sendNow(word);
    };
    return this.#inTurn(end, { timeout, inTransaction: true });
  }

  #whileWaiting(lockWait: number): TimeLimits {
    return { guard: Math.min(this.kind.guard, CONFIRM_WITHIN), lockWait };
  }

  /** Resolves to undefined when the server has ended the wait. */
  async #slice(since: number, work: (limits: TimeLimits) => Promise<unknown>): Promise<unknown> {
    const { clock, dialect, commandTimeout } = this.home;
    const length = sliceLength(dialect.slice, clock.now() - since);
    const answeredWithin = length + dialect.slice.late;
    try {
      const limits = { answeredWithin, timeout: answeredWithin + commandTimeout };
      return await this.#inTurn(() => work(this.#whileWaiting(length)), limits);
    } catch (error) {
      if (faultOf(error) !== 'busy') throw error;
      return undefined;
    }
  }

  /** Shows the server that its holder lives. Callers that ask while a heartbeat is in flight wait for the same. */
  beat(): Promise<void> {
    this.#heartbeat ??= this.#sendHeartbeat().finally(() => {
      this.#heartbeat = undefined;
    });
    return this.#heartbeat;
  }

  async #sendHeartbeat(): Promise<void> {
    const { home } = this;
    try {
      await this.confirm();
    } catch (error) {
      if (this.#state !== 'open' || !this.control || !home.dialect.isAnswer(error)) throw error;
      // In a transaction in which a statement has failed, Postgres answers every statement with an error.
      await home.confirmWriter();
    }
  }

  get #heartbeatSql(): string {
    return this.home.dialect.heartbeat(this.facts.isReadOnly, this.#isLent);
  }

  async #setLimits(limits: TimeLimits): Promise<void> {
    await this.run(this.home.dialect.setLimits(limits, this.#hasTransaction, this.facts.isReadOnly));
  }

  #reset(): void {
    this.onLost = undefined;
    const onReset = () => {
      this.#isLent = false;
      this.#free(true);
    };
    // If that fails, the next caller opens another one, and is told what is wrong.
    this.#inTurn(() => this.home.reset(this.connection, this.kind), this.#atOnce).then(onReset, this.destroy);
  }

  #end(): void {
    this.#state = 'ended';
    this.#hasTransaction = false;
    this.#dueAt = undefined;
    this.#abandon(new Error('The session has ended.'));
    this.#free(false);
    this.home.ended(this);
    this.#sendNext();
  }

  #free(isReusable: boolean): void {
    const { onFree } = this;
    this.onLost = undefined;
    this.onFree = undefined;
    onFree?.(isReusable);
  }

  /**
   * Sends a statement when everything before it was answered, in this tick if nothing is in flight: drivers are about to remove their own
   * queues. Rejects at the end of the session.
   *
   * It is sent in the async context of its caller, by which tracing libraries and values that read a store know whose it is.
   *
   * @throws TransactionEndedError when the statement may not be sent any more
   */
  #inTurn<T>(send: (() => Promise<T>) | undefined, limits: StatementLimits): Promise<T> {
    // One promise: on Node 20 each costs what ten calls cost.
    return new Promise<unknown>((resolve, reject) => {
      const statement: QueuedStatement = {
        send: send && this.#current ? AsyncResource.bind(send) : send,
        ...{ limits, resolve, reject },
      };
      if (limits.timeout !== undefined) this.#limit(statement, limits.timeout);
      if (send) this.inFlight += 1;
      this.#queue.push(statement);
      this.#sendNext();
    }) as Promise<T>;
  }

  /** Its caller is told after `timeout` ms that the server is silent. */
  #limit(statement: QueuedStatement, timeout: number): void {
    const { clock } = this.home;
    const since = clock.now();
    const onLate = () => {
      this.isSilent = true;
      this.home.fellSilent(since);
      const { reject } = statement;
      // What a late answer grants has to be undone, by the caller.
      const late = new Promise((...settle) => {
        [statement.resolve, statement.reject] = settle;
      });
      late.catch(() => undefined);
      reject(silentFor(timeout, late));
    };
    statement.timer = clock.setTimer(onLate, timeout, true);
  }

  #sendNext(): void {
    while (!this.#current) {
      const statement = this.#queue.shift();
      if (!statement) return;
      if (statement.send) this.#send(statement, statement.send);
      else this.#settle(statement).resolve();
    }
  }

  #send(statement: QueuedStatement, send: () => Promise<unknown>): void {
    const { inTransaction, answeredWithin = 0 } = statement.limits;
    this.#current = statement;
    if (inTransaction ? !this.#hasTransaction : this.#state === 'ended') {
      this.#fail(statement, new TransactionEndedError());
      return;
    }
    const sentAt = this.home.clock.now();
    this.#dueAt = sentAt + answeredWithin;
    let answer: Promise<unknown>;
    try {
      answer = send();
    } catch (error) {
      this.#fail(statement, error);
      return;
    }
    answer.then(
      (answer) => {
        this.#onAnswer(statement, sentAt, answer);
      },
      (error: unknown) => {
        void this.#onError(statement, sentAt, error);
      },
    );
  }

  /** The answer shows that the server has heard of us, and whether it may still be written and the transaction still exists. */
  #onAnswer(statement: QueuedStatement, sentAt: number, answer: unknown): void {
    if (this.#current !== statement) return;
    this.#heard(sentAt);
    // Nearly no statement asks. An answer to one of the application may have a column of that name.
    const row = Array.isArray(answer) && !statement.limits.inTransaction ? (answer[0] as Row | undefined) : undefined;
    if (row?.['read_only'] !== undefined && isTrue(row['read_only']))
      this.#settle(statement).reject(this.home.loseReadOnly(this.facts.server));
    else this.#settle(statement).resolve(answer);
    if (this.#hasTransaction) this.#observe(answer);
    this.#sendNext();
  }

  async #onError(statement: QueuedStatement, sentAt: number, error: unknown): Promise<void> {
    if (this.#current !== statement) return;
    if (this.home.dialect.isAnswer(error)) {
      this.#heard(sentAt);
      this.#failure = error;
      if (this.#hasTransaction) await this.#observeAfter(statement, error);
    }
    this.#fail(statement, error);
    this.#sendNext();
  }

  /** A driver may never answer what is in flight on a connection that is closed (mysql2 does not). */
  #abandon(reason: Error): void {
    if (this.#current) this.#fail(this.#current, this.#failure ?? reason);
  }

  /** Of a statement of ours that a read-only server refuses, the sessions of that server are lost. */
  #fail(statement: QueuedStatement, error: unknown): void {
    if (this.#current !== statement) return;
    const { reject } = this.#settle(statement);
    const isRefused = !statement.limits.inTransaction && !this.home.allowsReadOnly && faultOf(error) === 'read-only';
    reject(isRefused ? this.home.loseReadOnly(this.facts.server) : error);
  }

  /** Ends the turn of a statement, whose caller is to be answered. */
  #settle(statement: QueuedStatement): QueuedStatement {
    if (statement.timer !== undefined) this.home.clock.clearTimer(statement.timer);
    if (this.#current === statement) {
      this.#current = undefined;
      this.#failure = undefined;
      this.inFlight -= 1;
    }
    return statement;
  }

  #heard(sentAt: number): void {
    this.answered = Math.max(this.answered, sentAt);
    this.isSilent = false;
    this.#dueAt = undefined;
  }

  #observe(answer: unknown, cause?: unknown): void {
    if (this.home.dialect.isInTransaction(this.connection, answer) !== false) return;
    this.lose(cause ?? new Error('A statement in the transaction of the lock has ended it.'));
  }

  /**
   * A statement that fails may undo the whole transaction (a deadlock on MySQL), and the driver may report the error before the server
   * has reported the state. So the server is asked. On Postgres that fails in turn if the transaction has failed.
   */
  async #observeAfter(statement: QueuedStatement, error: unknown): Promise<void> {
    const answer = await this.sendNow(this.#heartbeatSql).catch(() => undefined);
    if (this.#current === statement) this.#observe(answer, error);
  }
}
