import { AsyncResource } from 'node:async_hooks';
import type { Clock } from '../../../api/clock.js';
import type { LockConfigError } from '../../../api/errors.js';
import type { RenewOutcome } from '../../../api/lock-provider.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import { firstRow, isTrue, type Row, type Run } from './answer.js';
import type { Dialect, DriverConnection, SendStatement, ServerFacts, SessionKind, TimeLimits } from './dialect.js';
import { failureOf, isReadOnlyRefusal } from './failure.js';
import { inTime } from './in-time.js';
import { Turn, type TurnLimits } from './turn.js';
import { sliceLength } from './wait-slice.js';

/** A statement that was not sent. */
export class TransactionEndedError extends Error {
  constructor() {
    super('The transaction of the lock has ended: this statement was not run.');
  }
}

// How long the server keeps a lock that a waiter was granted and does not answer for, in ms: the waiter may be frozen or cut off.
const CONFIRM_WITHIN = 3_000;

/** The common part of the sessions of one server. */
export interface SessionHome {
  readonly clock: Clock;
  readonly dialect: Dialect;
  /** How long the server may take to answer a statement of ours, in ms. */
  readonly commandTimeout: number;
  /** Whether the application uses a server that may not be written. */
  readonly allowsReadOnly: boolean;
  /** When a statement was sent, on the monotonic clock, that the server did not answer in time. */
  fellSilent(since: number): void;
  /** Sets up a connection that is new, or was reset. */
  setUp(connection: DriverConnection, kind: SessionKind): Promise<ServerFacts>;
  /** Asks the server, by its control session, whether it may still be written. @throws LockConfigError when it may not */
  confirmWriter(): Promise<void>;
  /** This server may not be written any more: all its sessions are lost. The error for the callers. */
  loseReadOnly(server: string): LockConfigError;
  /** Ends a session at the server, by its control session. */
  endOnServer(session: Session, control: Session): void;
  ended(session: Session): void;
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
  /** How many statements wait to be sent or for their answer. */
  #inFlight = 0;
  /** The turn of the statement that is at the server. */
  #turn: Turn<unknown> | undefined;
  /** The server's answer that this statement has failed, while the server is asked what that has ended. */
  #failure: unknown;
  /** The turns behind it. */
  readonly #turns: Turn<unknown>[] = [];
  /** Of a statement that waits for nothing. */
  readonly #atOnce: TurnLimits;
  #isSilent = false;
  /** When the answer of the statement that is at the server is due, on the monotonic clock. */
  #dueAt: number | undefined;
  #heartbeat: Promise<void> | undefined;
  /** The application may have left something on the connection. */
  #isLent = false;

  /** @param control the session that ends this one on the server's side; none for that session itself */
  constructor(
    private readonly home: SessionHome,
    private readonly connection: DriverConnection,
    readonly facts: ServerFacts,
    readonly control: Session | undefined,
    private readonly limits: SessionKind,
    /** When it was being opened, on the monotonic clock. */
    readonly openedAt: number,
  ) {
    this.answered = openedAt;
    this.#atOnce = { timeout: home.commandTimeout };
    const lose = (cause?: unknown) => {
      this.lose(cause);
    };
    connection.on('error', lose);
    connection.on('end', lose);
  }

  /** The connection or its transaction has ended before we ended it. */
  isLost(): boolean {
    return this.#state === 'lost';
  }

  /** A statement was not answered in time, and none since. */
  get isSilent(): boolean {
    return this.#isSilent;
  }

  /** After how many ms of silence the server ends it. */
  get guard(): number {
    return this.limits.guard;
  }

  /** How long the server may take to answer a statement of ours, in ms. */
  get commandTimeout(): number {
    return this.home.commandTimeout;
  }

  /** For how many ms an answer is overdue. */
  get overdueFor(): number {
    return this.#dueAt === undefined ? 0 : Math.max(0, this.home.clock.now() - this.#dueAt);
  }

  /** How many statements are in flight, of ours and of the application. */
  get inFlight(): number {
    return this.#inFlight;
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

  get dialect(): Dialect {
    return this.home.dialect;
  }

  /** Begins a transaction with a statement of one value, in one round trip, and resolves to its row. For sessions without autocommit. */
  async beginWith(sql: string, value: string): Promise<Row | undefined> {
    const { dialect } = this.home;
    let answer: unknown;
    try {
      answer = await this.#inTurn(() => dialect.beginWith(this.connection, sql, value), this.#atOnce);
    } catch (error) {
      throw this.refusalOf(error);
    }
    this.#hasTransaction = true;
    this.assertWriter(answer);
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
    this.assertWriter(answer);
    const row = firstRow(answer);
    if (!row) await this.rollback();
    return row;
  }

  /** Before the first {@link runSlice}: what is granted and not confirmed by {@link endWait} is freed soon. */
  async beginWait(): Promise<void> {
    await this.#setLimits(this.#whileWaiting(this.limits.lockWait));
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
    await this.#setLimits(this.limits);
  }

  /** Looks at the answer to a statement that locks. @throws LockConfigError when it says that the server may not be written any more */
  assertWriter(answer: unknown): void {
    if (isTrue(firstRow(answer)?.['read_only'])) throw this.home.loseReadOnly(this.facts.server);
  }

  /** The error for the callers of a statement of ours. Of one that a read-only server refuses, the sessions of that server are lost. */
  refusalOf(error: unknown): unknown {
    const isReadOnly = isReadOnlyRefusal(error) && !this.home.allowsReadOnly;
    return isReadOnly ? this.home.loseReadOnly(this.facts.server) : error;
  }

  /** Asks by a new statement whether the connection answers, and the server may still be written. @throws LockConfigError when it may not */
  confirm(): Promise<void> {
    return this.#ask(this.#heartbeatSql);
  }

  /** Commits what was written in the transaction, and frees its locks. It may take as long as silence may last: a synchronous standby may lag. */
  commit(): Promise<void> {
    return this.#endTransaction('COMMIT', this.guard);
  }

  async rollback(): Promise<void> {
    if (this.#hasTransaction) await this.#endTransaction('ROLLBACK', this.commandTimeout);
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
    if (this.#state !== 'open' || this.#inFlight > 0 || this.#hasTransaction) this.destroy();
    else if (this.#isLent) void this.#reset();
    else this.#free(true);
  }

  /** Until when the locks on it are surely ours. */
  get validUntil(): number {
    return validUntil(this.answered, this.guard);
  }

  /**
   * Renews the locks on it, by a heartbeat. Behind another statement that would only queue, so the server is asked by its control session.
   * While that statement runs the guard does not; but if its answer is on a wire that is cut, the server may have finished it long ago, so it
   * extends nothing before it is answered.
   */
  async renew(): Promise<RenewOutcome> {
    if (this.isLost()) return 'lost';
    const isBusy = this.#inFlight > 0 && !this.#heartbeat;
    try {
      await (isBusy ? this.home.confirmWriter() : this.beat());
    } catch {
      return this.isLost() ? 'lost' : 'unknown';
    }
    if (this.isLost()) return 'lost';
    if (isBusy && this.home.clock.now() - this.answered > this.guard / 3) return 'unknown';
    return { validUntil: this.validUntil };
  }

  /** The connection or its transaction has ended, or the server holds no locks any more. */
  lose(cause: unknown): void {
    if (this.#state !== 'open') return;
    this.#state = 'lost';
    this.#hasTransaction = false;
    // A statement in flight is not answered any more.
    this.#abandon(new Error('The session has been lost.', { cause }));
    try {
      this.onLost?.(cause);
    } finally {
      this.#nextTurn();
    }
  }

  /**
   * Ends the connection, its transaction and its wait on both sides. A socket that is closed is not enough: a server that waits for a
   * lock on our behalf does not look at it, and would be granted the lock; and where a reset has reached our side alone, the server
   * would keep our locks until the end of the session guard.
   */
  destroy(): void {
    if (this.#state === 'ended') return;
    if (this.control) this.home.endOnServer(this, this.control);
    this.home.dialect.sever(this.connection);
    this.#end();
  }

  /** Ends the connection as the server expects it: otherwise it counts and logs an aborted client. */
  async close(): Promise<void> {
    if (this.#state !== 'open') return;
    this.#end();
    const { clock, dialect, commandTimeout } = this.home;
    await inTime(clock, commandTimeout, dialect.close(this.connection)).catch(() => {
      dialect.sever(this.connection);
    });
  }

  async #endTransaction(word: 'COMMIT' | 'ROLLBACK', timeout: number): Promise<void> {
    const end = () => {
      this.#hasTransaction = false;
      return this.sendNow(word);
    };
    await this.#inTurn(end, { timeout, inTransaction: true });
  }

  #whileWaiting(lockWait: number): TimeLimits {
    return { guard: Math.min(this.guard, CONFIRM_WITHIN), lockWait };
  }

  /** Resolves to undefined when the server has ended the wait. */
  async #slice(since: number, work: (limits: TimeLimits) => Promise<unknown>): Promise<unknown> {
    const { clock, dialect, commandTimeout } = this.home;
    const length = sliceLength(dialect.slice, clock.now() - since);
    const { late } = dialect.slice;
    try {
      const limits = { answeredWithin: length + late, timeout: length + late + commandTimeout };
      return await this.#inTurn(() => work(this.#whileWaiting(length)), limits);
    } catch (error) {
      if (failureOf(error) !== 'busy') throw this.refusalOf(error);
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

  #setLimits(limits: TimeLimits): Promise<void> {
    return this.#ask(this.home.dialect.setLimits(limits, this.#hasTransaction, this.facts.isReadOnly));
  }

  /** Runs a statement that asks whether the server may still be written. @throws LockConfigError when it may not */
  async #ask(sql: string): Promise<void> {
    let answer: unknown;
    try {
      answer = await this.run(sql);
    } catch (error) {
      throw this.refusalOf(error);
    }
    this.assertWriter(answer);
  }

  /** Undoes what the application has left on the connection: a role, a table, read-only transactions would fail the next caller's locks. */
  async #reset(): Promise<void> {
    const { home, connection } = this;
    this.onLost = undefined;
    const reset = async () => {
      await home.dialect.reset(connection);
      await home.setUp(connection, this.limits);
    };
    try {
      await this.#inTurn(reset, this.#atOnce);
      this.#isLent = false;
      this.#free(true);
    } catch {
      // The next caller opens another one, and is told what is wrong.
      this.destroy();
    }
  }

  #end(): void {
    this.#state = 'ended';
    this.#hasTransaction = false;
    this.#dueAt = undefined;
    this.#abandon(new Error('The session has ended.'));
    this.#free(false);
    this.home.ended(this);
    this.#nextTurn();
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
  #inTurn<T>(send: (() => Promise<T>) | undefined, limits: TurnLimits): Promise<T> {
    const own = send && this.#turn ? AsyncResource.bind(send) : send;
    const turn = new Turn<T>(own, limits, this.home.clock, this.#onSilent);
    if (send) this.#inFlight += 1;
    this.#turns.push(turn as Turn<unknown>);
    this.#nextTurn();
    return turn.answer;
  }

  readonly #onSilent = (since: number): void => {
    this.#isSilent = true;
    this.home.fellSilent(since);
  };

  #nextTurn(): void {
    while (!this.#turn) {
      const turn = this.#turns.shift();
      if (!turn) return;
      if (turn.send) this.#begin(turn, turn.send);
      else turn.resolve(undefined);
    }
  }

  #begin(turn: Turn<unknown>, send: () => Promise<unknown>): void {
    this.#turn = turn;
    if (turn.inTransaction ? !this.#hasTransaction : this.#state === 'ended') {
      this.#fail(turn, new TransactionEndedError());
      return;
    }
    const sentAt = this.home.clock.now();
    this.#dueAt = sentAt + turn.answeredWithin;
    let answer: Promise<unknown>;
    try {
      answer = send();
    } catch (error) {
      this.#fail(turn, error);
      return;
    }
    answer.then(
      (answer) => {
        this.#onAnswer(turn, sentAt, answer);
      },
      (error: unknown) => {
        void this.#onError(turn, sentAt, error);
      },
    );
  }

  /** The answer shows that the server has heard of us, and whether the transaction still exists. */
  #onAnswer(turn: Turn<unknown>, sentAt: number, answer: unknown): void {
    if (this.#turn !== turn) return;
    this.#heard(sentAt);
    this.#endTurn();
    turn.resolve(answer);
    if (this.#hasTransaction) this.#observe(answer);
    this.#nextTurn();
  }

  async #onError(turn: Turn<unknown>, sentAt: number, error: unknown): Promise<void> {
    if (this.#turn !== turn) return;
    if (this.home.dialect.isAnswer(error)) {
      this.#heard(sentAt);
      this.#failure = error;
      if (this.#hasTransaction) await this.#observeAfter(turn, error);
    }
    this.#fail(turn, error);
    this.#nextTurn();
  }

  /** A driver may never answer what is in flight on a connection that is closed (mysql2 does not). */
  #abandon(reason: Error): void {
    const turn = this.#turn;
    if (turn) this.#fail(turn, this.#failure ?? reason);
  }

  #fail(turn: Turn<unknown>, error: unknown): void {
    if (this.#turn !== turn) return;
    this.#endTurn();
    turn.reject(error);
  }

  #endTurn(): void {
    this.#turn = undefined;
    this.#failure = undefined;
    this.#inFlight -= 1;
  }

  #heard(sentAt: number): void {
    this.answered = Math.max(this.answered, sentAt);
    this.#isSilent = false;
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
  async #observeAfter(turn: Turn<unknown>, error: unknown): Promise<void> {
    const answer = await this.sendNow(this.#heartbeatSql).catch(() => undefined);
    if (this.#turn === turn) this.#observe(answer, error);
  }
}
