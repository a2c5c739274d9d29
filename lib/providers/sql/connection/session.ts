import { AsyncResource } from 'node:async_hooks';
import type { Timer } from '../../../api/clock.js';
import type { RenewOutcome } from '../../../api/lock-provider.js';
import { promised } from '../../../core/toolkit/promised.js';
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

/** Thrown for a statement that was not sent. */
export class TransactionEndedError extends Error {
  constructor() {
    super('The lock transaction has ended, so this statement was not executed.');
  }
}

// How long the server keeps a lock granted to an unresponsive (perhaps frozen or disconnected) waiter, in ms.
const CONFIRM_WITHIN = 3_000;

/** How to send a statement, and how long to wait for the answer. */
interface StatementLimits {
  /**
   * Whether the statement must run in the transaction, because it is the application's or ends the transaction.
   * Default false.
   */
  readonly inTransaction?: boolean;
  /** How long the server itself may take, in ms. Default 0. */
  readonly answeredWithin?: number;
  /** The time, in ms, after which the caller gets a SilentServerError. Default: never. */
  readonly timeout?: number | undefined;
}

/** A statement that is queued or in flight. */
interface QueuedStatement {
  /** Undefined for an entry that only waits its turn. */
  readonly send: (() => Promise<unknown>) | undefined;
  readonly limits: StatementLimits;
  resolve: (answer?: unknown) => void;
  reject: (error: unknown) => void;
  timer?: Timer;
}

/**
 * One of our own connections. It either serves one attempt at a time or holds locks for several. It has at most one
 * transaction and is reused only once it is idle. If in doubt, it is destroyed, and the server frees its locks.
 *
 * Statements run one after another. The server's answers show whether the transaction still exists.
 */
export class Session {
  /** When the last answered statement was sent. */
  answered: number;
  /** When the session was opened, on `clock.uptime()`: a server may restart while this machine is suspended. */
  readonly openedAt: number;
  /** Called once, if the connection or its transaction ends before we end it. */
  onLost: ((cause: unknown) => void) | undefined;
  /** Called after each use with whether the session can be reused. */
  onFree: ((isReusable: boolean) => void) | undefined;
  #state: 'open' | 'lost' | 'ended' = 'open';
  /** Whether we have begun but not ended a transaction. */
  #hasTransaction = false;
  /** Whether the transaction has a savepoint. */
  #hasSavepoint = false;
  /** The number of statements sent or queued, including the application's. */
  inFlight = 0;
  /** The statement that was sent. */
  #current: QueuedStatement | undefined;
  /** The current statement's error, kept until a heartbeat shows its effects. */
  #failure: unknown;
  /** The statements queued behind the current one. */
  readonly #queue: QueuedStatement[] = [];
  /** Limits for statements that don't wait for locks. */
  readonly #atOnce: StatementLimits;
  /** Whether a statement timed out and none has been answered since. */
  isSilent = false;
  /** Whether we have destroyed the session, but the server may still keep it and its locks. */
  isEnding = false;
  /** When the answer to the current statement is due. */
  #dueAt: number | undefined;
  #heartbeat: Promise<void> | undefined;
  /** Whether the application may have changed the connection's state. */
  #isLent = false;

  /** @param control the session that can end this one on the server; undefined for the control session */
  constructor(
    readonly home: Server,
    private readonly connection: DriverConnection,
    readonly facts: ServerFacts,
    readonly control: Session | undefined,
    readonly kind: SessionKind,
    /** When the first statement was sent. */
    sentAt: number,
  ) {
    this.answered = sentAt;
    this.openedAt = home.clock.uptime();
    this.#atOnce = { timeout: home.commandTimeout };
    for (const event of ['error', 'end'] as const) connection.on(event, this.lose);
  }

  /** Whether the connection or its transaction ended before we ended it. */
  isLost(): boolean {
    return this.#state === 'lost';
  }

  /** How long an answer, or the end of the session on the server, has been overdue, in ms. */
  get overdueFor(): number {
    const dueAt = this.isEnding ? this.answered : this.#dueAt;
    return dueAt === undefined ? 0 : Math.max(0, this.home.clock.now() - dueAt);
  }

  /** Runs a statement that doesn't wait for locks. @throws SilentServerError if the server doesn't respond in time */
  readonly run: Run = (sql, parameters) => this.#inTurn(() => this.sendNow(sql, parameters), this.#atOnce);

  /** Sends a statement immediately, bypassing the queue. */
  sendNow(sql: string, parameters: readonly unknown[] = []): Promise<unknown> {
    return this.home.dialect.send(this.connection, sql, parameters, this.facts.prepares);
  }

  /** The connection for use by the application; see {@link Dialect.lend}. */
  lend(statement: SendStatement): object {
    this.#isLent = true;
    return this.home.dialect.lend(this.connection, statement);
  }

  /**
   * Begins a transaction and runs a statement with one value, in one round trip. Resolves to the row. For sessions
   * without autocommit.
   */
  async beginWith(sql: string, value: string): Promise<Row | undefined> {
    const answer = await this.#inTurn(() => this.home.dialect.beginWith(this.connection, sql, value), this.#atOnce);
    this.#hasTransaction = true;
    return firstRow(answer);
  }

  /**
   * Like {@link beginWith}, but with a SELECT that waits for a lock on behalf of a caller that has waited since
   * `since`. Resolves to the row, which {@link endWait} must confirm, or, if the slice ends first, to undefined without
   * a transaction.
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

  /**
   * Must be called before the first {@link runSlice}. Locks granted but not confirmed by {@link endWait} are then freed
   * soon.
   */
  async beginWait(): Promise<void> {
    await this.#setLimits(this.#whileWaiting(this.kind.lockWait));
  }

  /**
   * Runs a statement in autocommit that waits for a lock on behalf of a caller that has waited since `since`. Resolves
   * to undefined if the server ended the wait; even then, the session may hold the lock.
   */
  runSlice(since: number, statement: (limits: TimeLimits) => readonly [sql: string, values: readonly unknown[]]) {
    return this.#slice(since, (limits) => this.sendNow(...statement(limits)));
  }

  /**
   * Confirms a lock after a wait. Its validity starts now, because the previous answer belongs to a statement sent
   * before the wait.
   */
  async endWait(): Promise<void> {
    await this.#setLimits(this.kind);
  }

  /**
   * Sends a new statement to check that the connection works and the server accepts writes. @throws LockConfigError if
   * it doesn't accept writes
   */
  async confirm(): Promise<void> {
    await this.run(this.#heartbeatSql);
  }

  /**
   * Commits the transaction and frees its locks. May take as long as the guard, because a synchronous standby may lag.
   */
  async commit(): Promise<void> {
    await this.#endTransaction('COMMIT', this.kind.guard);
  }

  async rollback(): Promise<void> {
    if (!this.#hasTransaction) return;
    try {
      await this.#endTransaction('ROLLBACK', this.home.commandTimeout);
    } catch (error) {
      // If an operator has canceled it, the transaction still has its locks.
      if (!this.isLost()) this.destroy();
      throw error;
    }
  }

  /** Sends a statement in the transaction. @throws Error without sending it, if the transaction has ended */
  inTransaction<T>(statement: () => Promise<T>): Promise<T> {
    // Outside the transaction, the server would autocommit the statement without the lock.
    return this.#inTurn(statement, { inTransaction: true });
  }

  /** Sets a savepoint in the transaction. Errors of later statements then leave the transaction's earlier locks. */
  setSavepoint(name: string): Promise<unknown> {
    return this.inTransaction(async () => {
      const answer = await this.sendNow(`SAVEPOINT ${name}`);
      this.#hasSavepoint = true;
      return answer;
    });
  }

  /**
   * Resolves when everything in flight has been answered.
   *
   * @throws SilentServerError if the server doesn't respond in time
   */
  async idle(): Promise<void> {
    await this.#inTurn(undefined, this.#atOnce);
  }

  /** Ends this use of the session, which must have no open transaction and no locks. */
  giveBack(): void {
    // A statement the application didn't await would run in a later transaction, and an unanswered one may still take a
    // lock.
    if (this.#state !== 'open' || this.inFlight > 0 || this.#hasTransaction) this.destroy();
    else if (this.#isLent) this.#reset();
    else this.#free(true);
  }

  /** When the session's locks stop being valid. */
  get validUntil(): number {
    return validUntil(this.answered, this.kind.guard);
  }

  /**
   * Renews the locks on the session with a heartbeat. A heartbeat would only queue behind a running statement, so the
   * control session checks the server instead. The guard's timer doesn't run during that statement. But if the network
   * is cut, the server may have finished the statement long ago, so the validity is not extended until its result
   * arrives.
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

  /** Called when the connection or its transaction has ended, or the server no longer holds locks. */
  readonly lose = (cause?: unknown): void => {
    if (this.#state !== 'open') return;
    this.#state = 'lost';
    this.#hasTransaction = false;
    // The statement in flight won't be answered.
    this.#abandon(new Error('The session was lost.', { cause }));
    try {
      this.onLost?.(cause);
    } finally {
      this.#sendNext();
    }
  };

  /**
   * Ends the connection, its transaction, and its wait on both sides. Closing the socket isn't enough: a server waiting
   * for a lock on our behalf doesn't check it and would still acquire the lock. And if a reset reached
   * only our side, the server would keep our locks until the session guard ends.
   */
  readonly destroy = (): void => {
    if (this.#state === 'ended') return;
    if (this.control) this.home.endOnServer(this, this.control);
    this.home.dialect.sever(this.connection);
    this.#end();
  };

  /** Closes the connection gracefully, so that the server doesn't count or log an aborted client. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#end();
    const { clock, dialect, commandTimeout } = this.home;
    await inTime(clock, commandTimeout, dialect.close(this.connection)).catch(() => dialect.sever(this.connection));
  }

  #endTransaction(word: 'COMMIT' | 'ROLLBACK', timeout: number): Promise<unknown> {
    const end = () => {
      this.#hasTransaction = this.#hasSavepoint = false;
      return this.sendNow(word);
    };
    return this.#inTurn(end, { timeout, inTransaction: true });
  }

  #whileWaiting(lockWait: number): TimeLimits {
    return { guard: Math.min(this.kind.guard, CONFIRM_WITHIN), lockWait };
  }

  /** Resolves to undefined if the server ended the wait. */
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

  /** Sends a heartbeat. Concurrent callers share it. */
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
      // Behind its savepoint, a failed Postgres transaction keeps the lock but answers every statement with an error.
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
    // If the reset fails, the next caller opens another session and sees why.
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
   * Sends a statement after all previous ones have been answered, or in this tick if nothing is in flight. The drivers'
   * own queues are due to be removed. Rejects when the session ends.
   *
   * The statement is sent in the caller's async context, for tracing libraries and values that read an async store.
   *
   * @throws TransactionEndedError if the statement must no longer be sent
   */
  #inTurn<T>(send: (() => Promise<T>) | undefined, limits: StatementLimits): Promise<T> {
    // Uses a single promise because each one costs as much as ten calls on Node 20.
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

  /** Rejects after `timeout` ms of silence from the server. */
  #limit(statement: QueuedStatement, timeout: number): void {
    const { clock } = this.home;
    const since = clock.now();
    const onLate = () => {
      this.isSilent = true;
      this.home.fellSilent(since);
      const { reject } = statement;
      // The caller must undo what a late answer grants.
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
    promised(send).then(
      (answer) => {
        this.#onAnswer(statement, sentAt, answer);
      },
      (error: unknown) => {
        void this.#onError(statement, sentAt, error);
      },
    );
  }

  /**
   * Any answer shows that the server has heard from us. It may also show that the server has become read-only or the
   * transaction has ended.
   */
  #onAnswer(statement: QueuedStatement, sentAt: number, answer: unknown): void {
    if (this.#current !== statement) return;
    this.#heard(sentAt);
    // Few statements select `read_only`. Ignore it in the application's statements, which may have a column with that
    // name.
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
      if (this.#hasTransaction) {
        if (this.home.dialect.abortsOnError && !this.#hasSavepoint) this.lose(error);
        else await this.#observeAfter(statement, error);
      }
    }
    this.#fail(statement, error);
    this.#sendNext();
  }

  /**
   * Fails the current statement, because a driver may never answer it after the connection is closed (mysql2 doesn't).
   */
  #abandon(reason: Error): void {
    if (this.#current) this.#fail(this.#current, this.#failure ?? reason);
  }

  /**
   * Fails a statement. If one of ours was rejected because the server is read-only, all sessions on that server are
   * lost.
   */
  #fail(statement: QueuedStatement, error: unknown): void {
    if (this.#current !== statement) return;
    const { reject } = this.#settle(statement);
    const isRefused = !statement.limits.inTransaction && !this.home.allowsReadOnly && faultOf(error) === 'read-only';
    reject(isRefused ? this.home.loseReadOnly(this.facts.server) : error);
  }

  /** Removes a statement from the session. The caller must then resolve or reject it. */
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
    this.lose(cause ?? new Error("A statement ended the lock's transaction."));
  }

  /**
   * A failed statement may have rolled back the whole transaction (a deadlock on MySQL), and the driver may report the
   * error before the server has reported the state. So check with a heartbeat, which also fails if a Postgres
   * transaction has failed.
   */
  async #observeAfter(statement: QueuedStatement, error: unknown): Promise<void> {
    const answer = await this.sendNow(this.#heartbeatSql).catch(() => undefined);
    if (this.#current === statement) this.#observe(answer, error);
  }
}
