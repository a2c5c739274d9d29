import type { EntityManager, QueryRunner } from 'typeorm';
import type { Clock } from '../../engine/lock-provider.js';
import { type Dialect, type DriverConnection, propertyOf, type Run } from './dialect.js';
import { Savepoints } from './savepoints.js';
import { StatementsUnderWay } from './statements-under-way.js';
import { isEndOfTransaction, TransactionGate } from './transaction-gate.js';

/** The server has not answered in time. What it did with the statement is unknown. */
export class SilentServerError extends Error {}

/** How long the server may take to answer a statement of ours. */
export interface Patience {
  readonly clock: Clock;
  /** In ms. */
  readonly patience: number;
}

/** What a session needs of the pool that it comes from. */
export interface SessionHome extends Patience {
  readonly dialect: Dialect;
}

/** What `work` answers, in the time that the server may take. @throws SilentServerError */
export async function inTime<T>({ clock, patience }: Patience, work: Promise<T>): Promise<T> {
  let timer: object | undefined;
  const silence = new Promise<never>((_, reject) => {
    timer = clock.setTimer(() => {
      reject(new SilentServerError(`The database has not answered for ${patience} ms.`));
    }, patience);
  });
  try {
    return await Promise.race([work, silence]);
  } finally {
    if (timer) clock.clearTimer(timer);
  }
}

const TRANSACTION_WORDS: ReadonlySet<string> = new Set(['START TRANSACTION', 'COMMIT', 'ROLLBACK']);

/**
 * One connection of our own pool while it serves one attempt, or the locks of several. It carries at most one transaction,
 * and goes back to the pool only when nothing is left on it; in any doubt it is destroyed, and the server frees what it has.
 */
export class Session {
  /** When the last statement that the server has answered was sent, on the monotonic clock. */
  answered = -Infinity;
  /** Called once when the connection ends, or the server ends the transaction, before we do. */
  onLost: ((cause: unknown) => void) | undefined;
  readonly #gate = new TransactionGate();
  readonly #underWay = new StatementsUnderWay();
  /** Of the application, all in the transaction that we have begun. */
  readonly #savepoints = new Savepoints();
  /** The end of the statement of ours that was sent last. */
  #last: Promise<unknown> = Promise.resolve();
  #ours = 0;
  #isSilent = false;
  /** We are ending the transaction. */
  #isEnding = false;
  /** The server has rolled it back. */
  #isUndone = false;
  #hasEnded = false;
  #state: 'open' | 'lost' | 'ended' = 'open';
  #heartbeat: Promise<void> | undefined;
  readonly #onEnd = (cause?: unknown) => {
    this.#lose(cause);
  };

  constructor(
    private readonly home: SessionHome,
    private readonly runner: QueryRunner,
    private readonly connection: DriverConnection,
    private readonly kill: () => void,
    private readonly onEnded: () => void,
  ) {
    connection.on('error', this.#onEnd);
    connection.on('end', this.#onEnd);
    this.#watchStatements();
  }

  get manager(): EntityManager {
    return this.runner.manager;
  }

  /** The connection has ended, or the server has ended the transaction, before we did. */
  isLost(): boolean {
    return this.#state === 'lost';
  }

  /** A statement was not answered in time, and none since. */
  get isSilent(): boolean {
    return this.#isSilent;
  }

  get isBeating(): boolean {
    return this.#heartbeat !== undefined;
  }

  /** The server has answered the end of the transaction that we asked for: what fails after that is of the application. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** How many statements are under way, of ours and of the application. */
  get inFlight(): number {
    return this.#underWay.size;
  }

  /** Runs a statement that the server answers at once. @throws SilentServerError when it does not. */
  readonly run: Run = (sql, parameters) => this.inTime(this.send(sql, parameters));

  /**
   * Sends a statement, in its turn: drivers are about to drop their own queues. One that waits for a lock may do so for as long
   * as it likes. Rejects at the end of the session.
   */
  send(sql: string, parameters: readonly unknown[] = []): Promise<unknown> {
    const work =
      this.#ours === 0 ? this.#sendNow(sql, parameters) : this.#last.then(() => this.#sendNow(sql, parameters));
    const done = () => {
      this.#ours -= 1;
    };
    this.#ours += 1;
    this.#last = work.then(done, done);
    return work;
  }

  /** What a statement of this session answers, in the time that the server may take. @throws SilentServerError */
  async inTime<T>(work: Promise<T>): Promise<T> {
    try {
      return await inTime(this.home, work);
    } catch (error) {
      if (error instanceof SilentServerError) this.#isSilent = true;
      throw error;
    }
  }

  begin(): Promise<void> {
    this.#gate.begin();
    this.#isEnding = false;
    this.#isUndone = false;
    this.#hasEnded = false;
    return this.inTime(this.runner.startTransaction());
  }

  /** Makes what was written in the transaction last, and frees its locks. */
  async commit(): Promise<void> {
    this.#isEnding = true;
    await this.inTime(this.runner.commitTransaction());
    // TypeORM takes a transaction within a transaction for a savepoint, and then has committed only that.
    if (!this.#gate.isOver) throw new Error('A nested transaction of the application has not ended.');
  }

  async rollback(): Promise<void> {
    this.#isEnding = true;
    this.#gate.rollBack();
    // TypeORM rolls the application's nested ones back first, each by itself.
    try {
      while (!this.#gate.isOver) await this.inTime(this.runner.rollbackTransaction());
    } catch (error) {
      // Behind the end it is a subscriber of the application that has failed.
      if (!this.#hasEnded) throw error;
    }
  }

  /** Back to the pool, with no transaction open and no lock held. */
  giveBack(): void {
    // What the application has not awaited would run in somebody else's transaction, and what the server has not answered
    // may still take a lock.
    if (this.#state !== 'open' || this.inFlight > 0) {
      this.destroy();
      return;
    }
    this.#end();
    this.runner.release().catch(() => undefined);
  }

  /** Shows the server that its holder lives. Those who ask while one is under way wait for the same. */
  heartbeat(): Promise<void> {
    this.#heartbeat ??= this.run(this.home.dialect.heartbeat).then(
      () => {
        this.#heartbeat = undefined;
      },
      (error: unknown) => {
        this.#heartbeat = undefined;
        throw error;
      },
    );
    return this.#heartbeat;
  }

  /**
   * Ends the connection, its transaction and its wait on both sides. A socket that is closed is not enough: a server
   * that waits for a lock on our behalf does not look at it, and would be granted the lock.
   */
  destroy(): void {
    if (this.#state === 'ended') return;
    if (this.#state === 'open') this.kill();
    this.#end();
    // Its last words may be an error, which nobody else listens to.
    this.connection.on('error', () => undefined);
    this.home.dialect.sever(this.connection);
    // Takes the connection out of the driver's books. It is closed, so there is nothing to wait for.
    this.runner.release().catch(() => undefined);
  }

  #end(): void {
    this.#state = 'ended';
    this.#gate.close();
    this.onLost = undefined;
    this.connection.removeListener('end', this.#onEnd);
    this.connection.removeListener('error', this.#onEnd);
    this.#underWay.abandon(new Error('The session has ended.'));
    this.onEnded();
  }

  #lose(cause: unknown): void {
    if (this.#state !== 'open') return;
    this.#state = 'lost';
    // After a deadlock MySQL would run what follows without a transaction.
    this.#gate.close();
    this.onLost?.(cause);
  }

  #sendNow(sql: string, parameters: readonly unknown[]): Promise<unknown> {
    // What waited for its turn may come too late for a connection that somebody else has by now.
    if (this.#state === 'ended') return Promise.reject(new Error('The session has ended.'));
    return this.#watch(() => this.home.dialect.send(this.connection, sql, parameters));
  }

  /** From the answers we know that the server heard of us. */
  async #watch<T>(send: () => Promise<T>): Promise<T> {
    const sentAt = this.home.clock.now();
    const answer = await this.#underWay.add(send());
    this.answered = Math.max(this.answered, sentAt);
    this.#isSilent = false;
    return answer;
  }

  /**
   * The statements of the application, and those that begin and end transactions, pass through `query` of the runner. They
   * count as signs of life, and tell whether the server has rolled the transaction back.
   */
  #watchStatements(): void {
    const { runner } = this;
    const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
    const watched = async (...args: unknown[]): Promise<unknown> => {
      if (this.#ours > 0) await this.#last;
      const [sql] = args;
      if (!this.#gate.admit(sql)) return undefined;
      try {
        // TypeORM keeps its books of the transaction, and the driver is spared a detour that costs more than the statement.
        if (typeof sql === 'string' && TRANSACTION_WORDS.has(sql)) return await this.#sendWord(sql);
        const answer = await this.#watch(() => query(...args).catch(this.#noteUndone));
        this.#savepoints.follow(String(sql));
        return answer;
      } catch (error) {
        this.#failed(error);
        throw error;
      }
    };
    runner.query = watched as QueryRunner['query'];
  }

  async #sendWord(word: string): Promise<unknown> {
    // What TypeORM has let in may still wait for a subscriber of the application, and would be sent behind the end.
    if (isEndOfTransaction(word)) await this.#underWay.end();
    // MySQL would commit nothing, and say that all is well.
    if (word === 'COMMIT' && this.#isUndone) throw new Error('The server has rolled back.');
    const answer = await this.#sendNow(word, []);
    // So Postgres answers the COMMIT of a transaction in which a statement has failed.
    if (word === 'COMMIT' && propertyOf(answer, 'command') === 'ROLLBACK')
      throw new Error('The server has rolled back.');
    if (isEndOfTransaction(word)) {
      if (this.#isEnding) this.#hasEnded = true;
      else this.#lose(new Error('The application has ended the transaction.'));
    }
    return answer;
  }

  /** Before a COMMIT that waits for the statement goes on; the loss ends the session, and so comes after its error. */
  readonly #noteUndone = (error: unknown): never => {
    if (this.home.dialect.undone(error) === 'all') this.#isUndone = true;
    throw error;
  };

  #failed(error: unknown): void {
    const { dialect, clock } = this.home;
    const undone = dialect.undone(error);
    if (undone === 'all') this.#lose(error);
    else if (undone === 'since-savepoint' && this.#savepoints.count === 0) {
      // A task that ends by this very error ends first, and its caller gets that and no loss.
      clock.setTimer(() => {
        if (this.#gate.isOpen) this.#lose(error);
      }, 0);
    }
  }
}
