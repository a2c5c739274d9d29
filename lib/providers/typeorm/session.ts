import type { EntityManager, QueryRunner } from 'typeorm';
import type { Clock } from '../../engine/lock-provider.js';
import { type Dialect, type DriverConnection, type Failure, type Run } from './dialect.js';

/** The server has not answered in time. What it did with the statement is unknown. */
export class SilentServerError extends Error {}

/** What a session needs of the pool that it comes from. */
export interface SessionHome {
  readonly clock: Clock;
  readonly dialect: Dialect;
  /** How long the server may take to answer a statement of ours, in ms. */
  readonly patience: number;
}

/** What `work` answers, in the time that the server may take. @throws SilentServerError */
export async function inTime<T>({ clock, patience }: SessionHome, work: Promise<T>): Promise<T> {
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

/**
 * One connection of our own pool while it serves one attempt. It carries at most one transaction, and goes back to the
 * pool only when that has ended cleanly; in any doubt it is destroyed, and the server rolls back.
 */
export class Session {
  /** When the last statement that the server has answered was sent, on the monotonic clock. */
  answered = -Infinity;
  /** Called once when the connection ends, or the server ends the transaction, before we do. */
  onLost: ((cause: unknown) => void) | undefined;
  #inFlight = 0;
  #onEnded: (() => void) | undefined;
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

  get isBeating(): boolean {
    return this.#heartbeat !== undefined;
  }

  /** A statement is under way, of ours or of the application. */
  get isBusy(): boolean {
    return this.#inFlight > 0;
  }

  /** Runs a statement that the server answers at once. @throws SilentServerError when it does not. */
  readonly run: Run = (sql, parameters = []) => inTime(this.home, this.runner.query(sql, [...parameters]));

  /** Runs a statement that may wait for a lock for as long as it likes. Rejects at the end of the session. */
  wait(sql: string, parameters: readonly unknown[]): Promise<unknown> {
    return new Promise((resolve, reject) => {
      // A driver does not answer what was under way on a connection that we have closed.
      this.#onEnded = () => {
        reject(new Error('The session has ended.'));
      };
      this.runner.query(sql, [...parameters]).then(resolve, reject);
    });
  }

  begin(): Promise<void> {
    return inTime(this.home, this.runner.startTransaction());
  }

  /** Makes what was written in the transaction last, and frees its locks. */
  async commit(): Promise<void> {
    await inTime(this.home, this.runner.commitTransaction());
    // TypeORM takes a transaction within a transaction for a savepoint, and then has committed only that.
    if (this.runner.isTransactionActive) throw new Error('A nested transaction of the application has not ended.');
  }

  async rollback(): Promise<void> {
    // Of the application's nested ones each is rolled back by itself.
    while (this.runner.isTransactionActive) await inTime(this.home, this.runner.rollbackTransaction());
  }

  /** Back to the pool, with no transaction open. */
  giveBack(): void {
    // What the application has not awaited would run in somebody else's transaction.
    if (this.#state !== 'open' || this.isBusy) {
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
    this.onLost = undefined;
    this.connection.removeListener('end', this.#onEnd);
    this.connection.removeListener('error', this.#onEnd);
    this.#onEnded?.();
    this.onEnded();
  }

  #lose(cause: unknown): void {
    if (this.#state !== 'open') return;
    this.#state = 'lost';
    this.onLost?.(cause);
  }

  /**
   * All statements on this connection pass through `query` of its runner, also those of the application: from their
   * answers we know that the server heard of us, and whether it has rolled the transaction back.
   */
  #watchStatements(): void {
    const { runner, home } = this;
    const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
    const watched = async (...args: unknown[]): Promise<unknown> => {
      const sentAt = home.clock.now();
      this.#inFlight += 1;
      try {
        const answer = await query(...args);
        this.answered = Math.max(this.answered, sentAt);
        return answer;
      } catch (error) {
        const failure: Failure = home.dialect.classify(error);
        if (failure === 'rolled-back') this.#lose(error);
        throw error;
      } finally {
        this.#inFlight -= 1;
      }
    };
    runner.query = watched as QueryRunner['query'];
  }
}
