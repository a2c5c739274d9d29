import type { QueryRunner } from 'typeorm';
import { type Dialect, type DriverConnection, driverErrorOf, type Run } from '../dialect.js';
import { Savepoints } from '../savepoints.js';
import { inTime, type Patience, SilentServerError } from '../session.js';
import { StatementsUnderWay } from '../statements-under-way.js';

/**
 * How a lock in a transaction has come to its end.
 *
 * - `ended`: the application has ended the transaction, or rolled back to a savepoint from before the lock.
 * - `undone`: the server has undone the transaction, or the part of it in which the lock was taken.
 * - `disconnected`: the connection has ended.
 */
export type TransactionEnding = 'ended' | 'undone' | 'disconnected';

export type EndListener = (ending: TransactionEnding, cause: unknown) => void;

export interface TransactionTerms extends Patience {
  readonly dialect: Dialect;
}

// The last two are those of Postgres.
const END = /^\s*(?:commit|rollback|end|abort)\b/i;

/** Statements of ours, for which those of the application wait. */
interface Turn {
  /** Their end. */
  over: Promise<void>;
}

const transactions = new WeakMap<QueryRunner, ApplicationTransaction>();

/** The transaction that runs on this runner, one for all locks in it: drivers warn of more than ten listeners. */
export async function transactionOn(runner: QueryRunner, terms: TransactionTerms): Promise<ApplicationTransaction> {
  const connection = (await runner.connect()) as DriverConnection;
  let transaction = transactions.get(runner);
  if (!transaction) {
    transaction = new ApplicationTransaction(runner, connection, terms);
    transactions.set(runner, transaction);
  }
  return transaction;
}

/**
 * A transaction of the application, as the locks in it see it. TypeORM tells nobody how it goes on, so the statements of its
 * runner are watched while there is a lock: they are signs of life, and tell of its end and of its savepoints.
 */
export class ApplicationTransaction {
  /** When the last statement that the server has answered was sent, on the monotonic clock. */
  answered = -Infinity;
  /** For each lock, how many of the savepoints were there before it. */
  readonly #depths = new Map<EndListener, number>();
  /** Those that the application has set since the first of the locks. */
  readonly #savepoints = new Savepoints();
  /** Of the application. Its subscribers may keep one back, so they need not end in the order in which they began. */
  readonly #underWay = new StatementsUnderWay();
  #ours: Turn | undefined;
  #heartbeat: Promise<unknown> | undefined;

  constructor(
    runner: QueryRunner,
    private readonly connection: DriverConnection,
    private readonly terms: TransactionTerms,
  ) {
    const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
    const watched = (...args: unknown[]) =>
      this.#depths.size === 0 ? query(...args) : this.#watch(String(args[0]), () => query(...args));
    runner.query = watched as QueryRunner['query'];
  }

  /** A statement of the application is under way, and none of ours. */
  get isBusy(): boolean {
    return this.#underWay.size > 0 && !this.#ours;
  }

  /** Tells `onEnd` of the end of what is locked from here on; called again, from there on. */
  join(onEnd: EndListener): void {
    if (this.#depths.size === 0) {
      this.connection.on('error', this.#onLost);
      this.connection.on('end', this.#onLost);
    }
    this.#depths.set(onEnd, this.#savepoints.count);
  }

  leave(onEnd: EndListener): void {
    if (!this.#depths.delete(onEnd) || this.#depths.size > 0) return;
    // They are older than every lock that comes.
    this.#savepoints.clear();
    this.connection.removeListener('error', this.#onLost);
    this.connection.removeListener('end', this.#onLost);
  }

  /**
   * Runs statements of ours with none of the application's among them, whose savepoints would end with ours; and one at a
   * time, as drivers are about to drop their queues. They pass none of the application's subscribers.
   */
  async exclusively<T>(work: (run: Run) => Promise<T>): Promise<T> {
    while (this.#ours ?? this.#underWay.size > 0) await (this.#ours?.over ?? this.#underWay.end());
    const turn: Turn = { over: Promise.resolve() };
    this.#ours = turn;
    const done = work((sql, parameters) => this.#run(turn, sql, parameters));
    const over = () => {
      this.#endTurn(turn);
    };
    turn.over = done.then(over, over);
    return done;
  }

  /** Asks the server whether it is still there. One that is not answered in time is not sent again. @throws SilentServerError */
  async heartbeat(): Promise<void> {
    this.#heartbeat ??= this.exclusively((run) => run(this.terms.dialect.heartbeat)).finally(() => {
      this.#heartbeat = undefined;
    });
    await inTime(this.terms, this.#heartbeat);
  }

  async #run(turn: Turn, sql: string, parameters: readonly unknown[] = []): Promise<unknown> {
    const { clock, dialect } = this.terms;
    // The application has gone on, and this would stand among its statements: what it writes behind our savepoint would be
    // undone with that, and what it sets there would end with it.
    if (this.#ours !== turn) throw new SilentServerError('The database has answered too late.');
    const sentAt = clock.now();
    const answer = await dialect.send(this.connection, sql, parameters);
    this.answered = Math.max(this.answered, sentAt);
    return answer;
  }

  readonly #onLost = (cause?: unknown): void => {
    this.#end(
      0,
      'disconnected',
      cause instanceof Error ? cause : new Error('The connection of its transaction has ended.'),
    );
  };

  async #watch(sql: string, query: () => Promise<unknown>): Promise<unknown> {
    while (this.#ours) {
      const turn = this.#ours;
      // What is silent for longer than that holds up the application in the driver, as it would without us.
      await inTime(this.terms, turn.over).catch(() => {
        this.#endTurn(turn);
      });
    }
    const sentAt = this.terms.clock.now();
    // Before it is sent: the next holder may have the row before we have the answer.
    this.#foresee(sql);
    try {
      const answer = await this.#underWay.add(query());
      this.answered = Math.max(this.answered, sentAt);
      this.#follow(sql);
      return answer;
    } catch (error) {
      this.#failed(error);
      throw error;
    }
  }

  #endTurn(turn: Turn): void {
    if (this.#ours === turn) this.#ours = undefined;
  }

  #foresee(sql: string): void {
    const left = this.#savepoints.leftBy(sql);
    if (left !== undefined) {
      // Postgres frees what was locked since the savepoint, MariaDB where the transaction had done nothing before it.
      this.#end(left, 'ended', new Error('Its transaction was rolled back to a savepoint from before the lock.'));
    } else if (END.test(sql)) this.#end(0, 'ended', new Error('Its transaction has ended.'));
  }

  #follow(sql: string): void {
    if (this.#depths.size === 0) return;
    this.#savepoints.follow(sql);
    // What was locked after a savepoint that is released belongs to the transaction around it now.
    for (const [onEnd, depth] of this.#depths) this.#depths.set(onEnd, Math.min(depth, this.#savepoints.count));
  }

  #failed(error: unknown): void {
    const { clock, dialect } = this.terms;
    const undone = dialect.undone(error);
    const cause = driverErrorOf(error);
    if (undone === 'all') this.#end(0, 'undone', cause);
    else if (undone === 'since-savepoint') {
      const locked = this.#lockedSince(this.#savepoints.count);
      // A task that ends by this very error ends first, and its caller gets that and no loss.
      clock.setTimer(() => {
        this.#endAll(locked, 'undone', cause);
      }, 0);
    }
  }

  /** Ends the locks that were taken with at least `depth` savepoints before them. */
  #end(depth: number, ending: TransactionEnding, cause: unknown): void {
    this.#endAll(this.#lockedSince(depth), ending, cause);
  }

  #lockedSince(depth: number): readonly EndListener[] {
    return [...this.#depths].filter(([, own]) => own >= depth).map(([onEnd]) => onEnd);
  }

  #endAll(locked: readonly EndListener[], ending: TransactionEnding, cause: unknown): void {
    for (const onEnd of locked) {
      if (!this.#depths.has(onEnd)) continue;
      this.leave(onEnd);
      onEnd(ending, cause);
    }
  }
}
