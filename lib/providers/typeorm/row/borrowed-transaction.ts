import type { EntityManager, QueryRunner } from 'typeorm';
import {
  type AcquireRequest,
  type Grant,
  type ReleaseOutcome,
  type RenewOutcome,
  validUntil,
} from '../../../engine/lock-provider.js';
import { LockConfigError, LockDeadlockError, LockUnavailableError } from '../../../lock/errors.js';
import { driverErrorOf, firstRow, propertyOf, type Run } from '../dialect.js';
import type { LockAttempt } from '../session-locks.js';
import {
  type ApplicationTransaction,
  type TransactionEnding,
  type TransactionTerms,
  transactionOn,
} from './application-transaction.js';
import type { RowLocking } from './row-attempt.js';

const SAVEPOINT = 'distributed_lock';

// What a savepoint fails with where there is no transaction any more, or one that has failed: 1305 of MySQL (the savepoint
// does not exist), no_active_sql_transaction and in_failed_sql_transaction of Postgres.
const NO_TRANSACTION: ReadonlySet<unknown> = new Set([1305, '25P01', '25P02']);

/** What an attempt in a transaction of the application needs of its provider. */
export interface BorrowedLocking extends RowLocking, TransactionTerms {}

/**
 * A row lock inside a transaction of the application: it lasts until that has ended.
 *
 * A busy row is asked for again and again with SKIP LOCKED, which neither blocks the connection nor fails: an error would
 * abort the whole transaction on Postgres, and a wait could not be ended without ending the application's connection.
 */
export class BorrowedTransaction implements LockAttempt {
  #transaction: ApplicationTransaction | undefined;
  #grant: Grant | undefined;
  #isOver = false;
  #ending: { readonly ending: TransactionEnding; readonly cause: unknown } | undefined;

  constructor(
    private readonly locking: BorrowedLocking,
    private readonly request: AcquireRequest,
    private readonly row: string,
    private readonly manager: EntityManager,
  ) {}

  get grant(): Grant | undefined {
    return this.#grant && !this.#hasEnded() ? { ...this.#grant, validUntil: this.#validUntil() } : undefined;
  }

  async acquire(): Promise<Grant | 'busy'> {
    const transaction = await transactionOn(this.#runner(), this.locking);
    this.#transaction = transaction;
    // Before anything is asked: it may end while we do.
    transaction.join(this.#onEnd);
    try {
      const fencingToken = (await this.#lockRow(transaction)) ? await this.#nextToken(transaction) : 'busy';
      if (this.#ending) throw this.#endedMeanwhile(this.#ending);
      if (fencingToken === 'busy' || this.#hasEnded()) {
        this.release();
        return 'busy';
      }
      const { key, holder, mode } = this.request;
      const lease = this.locking.guard;
      this.#grant = { key, holder, mode, fencingToken, validUntil: this.#validUntil(), lease };
      return this.#grant;
    } catch (error) {
      this.release();
      throw this.#ending ? this.#endedMeanwhile(this.#ending) : error;
    }
  }

  async renew(): Promise<RenewOutcome> {
    const transaction = this.#transaction;
    const { clock, guard } = this.locking;
    if (!transaction || !this.grant || !isRunning(this.manager.queryRunner)) return 'lost';
    // A heartbeat would only queue behind a statement of the application, whose answer will be one. But that may be on a wire
    // that is cut, so it extends nothing before it is there.
    if (!transaction.isBusy) {
      try {
        await transaction.heartbeat();
      } catch {
        return this.#hasEnded() ? 'lost' : 'unknown';
      }
    } else if (clock.now() - transaction.answered > guard / 3) return 'unknown';
    return this.#hasEnded() ? 'lost' : { validUntil: this.#validUntil() };
  }

  /** The row stays locked until the application ends its transaction. */
  release(): ReleaseOutcome {
    const wasHeld = this.grant !== undefined;
    this.#isOver = true;
    this.#transaction?.leave(this.#onEnd);
    return wasHeld ? 'released' : 'lost';
  }

  readonly #onEnd = (ending: TransactionEnding, cause: unknown): void => {
    const wasHeld = this.grant !== undefined;
    this.#isOver = true;
    this.#ending = { ending, cause };
    if (wasHeld) this.locking.onLost(this.request.holder, cause);
  };

  async #lockRow(transaction: ApplicationTransaction): Promise<boolean> {
    const { locking, request, row } = this;
    for (let isQueued = false; ; isQueued = true) {
      // On another connection, and before it is asked for in this transaction: under REPEATABLE READ, the default of MySQL and
      // MariaDB, a search for a row that is missing locks the gap, in which nobody could then make it. Each time: it may be
      // purged while somebody waits for it.
      await locking.table.ensureRow(row);
      if (this.#hasEnded()) return false;
      if (await transaction.exclusively((run) => this.#attempt(transaction, run))) return true;
      if (request.wait <= 0 || request.signal.aborted || this.#hasEnded()) return false;
      if (!isQueued) locking.onWaiting(request.holder);
      await locking.pause(request.signal);
      if (this.#hasEnded()) return false;
    }
  }

  /**
   * Between savepoints. What fails then leaves the transaction as it was, also on Postgres; and none is there to release
   * where the server has undone the transaction for a deadlock that the application has caught: the row would be locked
   * for that one statement alone.
   */
  async #attempt(transaction: ApplicationTransaction, run: Run): Promise<boolean> {
    if (this.#hasEnded()) return false;
    try {
      await run(`SAVEPOINT ${SAVEPOINT}`);
      let isLocked: boolean;
      try {
        isLocked = firstRow(await run(this.locking.dialect.tryLock(this.request.mode), [this.row])) !== undefined;
      } catch (error) {
        // The error says more than that of a connection that is gone.
        await run(`ROLLBACK TO SAVEPOINT ${SAVEPOINT}`).catch(() => undefined);
        throw error;
      }
      await run(`RELEASE SAVEPOINT ${SAVEPOINT}`);
      // Behind the savepoints that the application has set by now.
      if (isLocked && !this.#hasEnded()) transaction.join(this.#onEnd);
      return isLocked;
    } catch (error) {
      const cause = driverErrorOf(error);
      const isUndone =
        this.locking.dialect.classify(error) === 'rolled-back' ||
        NO_TRANSACTION.has(propertyOf(cause, 'errno')) ||
        NO_TRANSACTION.has(propertyOf(cause, 'code'));
      throw isUndone ? this.#undone(cause) : error;
    }
  }

  async #nextToken(transaction: ApplicationTransaction): Promise<bigint | null> {
    const { locking, request } = this;
    const counter = locking.counterOf(request.key);
    if (counter === undefined) return null;
    const token = await locking.table.nextToken(counter);
    // The row may have been freed before it was counted, and then the next holder may have the smaller token.
    await transaction.exclusively((run) => run(locking.dialect.heartbeat));
    return token;
  }

  #endedMeanwhile({ ending, cause }: { readonly ending: TransactionEnding; readonly cause: unknown }): unknown {
    if (ending === 'undone') return this.#undone(cause);
    if (ending === 'disconnected') return this.#disconnected(cause);
    const { key } = this.request;
    return new LockConfigError(
      `Lock "${key}" could not be taken in your transaction, which has ended meanwhile: await it before you commit or roll back.`,
      { key, cause },
    );
  }

  #undone(cause: unknown): LockDeadlockError {
    const { key } = this.request;
    return new LockDeadlockError(
      `Lock "${key}" could not be taken in your transaction: the database has rolled the whole transaction back (deadlock); run it again from its beginning.`,
      { key, cause },
    );
  }

  #disconnected(cause?: unknown): LockUnavailableError {
    const { key } = this.request;
    return new LockUnavailableError(
      `Lock "${key}" could not be taken in your transaction, whose connection has ended: run it again from its beginning.`,
      { key, cause },
    );
  }

  #runner(): QueryRunner {
    const { queryRunner } = this.manager;
    if (queryRunner && isRunning(queryRunner)) return queryRunner;
    // TypeORM releases a runner of Postgres by itself when its connection ends.
    if (queryRunner?.isTransactionActive) throw this.#disconnected();
    const { key } = this.request;
    throw new LockConfigError(
      `Lock "${key}": "transaction" must be the EntityManager of a running transaction, as dataSource.transaction() passes it.`,
      { key },
    );
  }

  // A method, because the answer changes while something is awaited.
  #hasEnded(): boolean {
    return this.#isOver;
  }

  #validUntil(): number {
    return validUntil(this.#transaction?.answered ?? -Infinity, this.locking.guard);
  }
}

function isRunning(runner: QueryRunner | undefined): boolean {
  return runner !== undefined && runner.isTransactionActive && !runner.isReleased;
}
