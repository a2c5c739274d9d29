import type { EntityManager, QueryRunner } from 'typeorm';
import {
  type AcquireRequest,
  type Grant,
  type ReleaseOutcome,
  type RenewOutcome,
  validUntil,
} from '../../../engine/lock-provider.js';
import { LockConfigError, LockDeadlockError } from '../../../lock/errors.js';
import { driverErrorOf, firstRow } from '../dialect.js';
import type { LockAttempt } from '../session-locks.js';
import type { RowLocking } from './row-attempt.js';
import { watchTransaction } from './transaction-end.js';

const SAVEPOINT = 'distributed_lock';

/**
 * A row lock inside a transaction of the application: it lasts until that has ended.
 *
 * A busy row is asked for again and again with SKIP LOCKED, which neither blocks the connection nor fails: an error would
 * abort the whole transaction on Postgres, and a wait could not be ended without ending the application's connection.
 */
export class BorrowedTransaction implements LockAttempt {
  #grant: Grant | undefined;
  #isOver = false;
  #unwatch: (() => void) | undefined;

  constructor(
    private readonly locking: RowLocking,
    private readonly request: AcquireRequest,
    private readonly row: string,
    private readonly manager: EntityManager,
  ) {}

  get grant(): Grant | undefined {
    return this.#isOver ? undefined : this.#grant;
  }

  async acquire(): Promise<Grant | 'busy'> {
    const { locking, request } = this;
    const runner = this.#runner();
    // On another connection, and before anything is asked in this transaction: under REPEATABLE READ, the default of MySQL and
    // MariaDB, a search for a row that is missing locks the gap, in which nobody could then make it.
    await locking.table.ensureRow(this.row);
    if (!(await this.#attempt(runner))) return 'busy';
    const counter = locking.counterOf(request.key);
    const fencingToken = counter === undefined ? null : await locking.table.nextToken(counter);
    const askedAt = locking.clock.now();
    await runner.query(locking.dialect.heartbeat);
    this.#unwatch = await watchTransaction(runner, this.#onEnd);
    if (this.#isOver) {
      this.#unwatch();
      return 'busy';
    }
    const { key, holder, mode } = request;
    const until = validUntil(askedAt, locking.guard);
    this.#grant = { key, holder, mode, fencingToken, validUntil: until, lease: locking.guard };
    return this.#grant;
  }

  /** Asks nobody: the connection is the application's, which knows best whether it lives. */
  renew(): RenewOutcome {
    if (!this.grant || !isRunning(this.manager.queryRunner)) return 'lost';
    return { validUntil: validUntil(this.locking.clock.now(), this.locking.guard) };
  }

  /** The row stays locked until the application ends its transaction. */
  release(): ReleaseOutcome {
    const wasHeld = this.grant !== undefined;
    this.#isOver = true;
    this.#unwatch?.();
    return wasHeld ? 'released' : 'lost';
  }

  readonly #onEnd = (cause: Error): void => {
    if (!this.grant) return;
    this.release();
    this.locking.onLost(this.request.holder, cause);
  };

  /**
   * Between savepoints. What fails then leaves the transaction as it was, also on Postgres; and none is there to release
   * where the server has undone the transaction for a deadlock that the application has caught: the row would be locked
   * for that one statement alone.
   */
  async #attempt(runner: QueryRunner): Promise<boolean> {
    await this.#needed(runner.query(`SAVEPOINT ${SAVEPOINT}`));
    let isLocked: boolean;
    try {
      isLocked = await this.#lockRow(runner);
    } catch (error) {
      // The error says more than that of a connection that is gone.
      await runner.query(`ROLLBACK TO SAVEPOINT ${SAVEPOINT}`).catch(() => undefined);
      throw error;
    }
    await this.#needed(runner.query(`RELEASE SAVEPOINT ${SAVEPOINT}`));
    return isLocked;
  }

  async #lockRow(runner: QueryRunner): Promise<boolean> {
    const { locking, request, row } = this;
    const tryLock = async () =>
      firstRow(await this.#query(runner, locking.dialect.tryLock(request.mode), row)) !== undefined;
    for (let isQueued = false; ; isQueued = true) {
      if (await tryLock()) return true;
      if (request.wait <= 0 || request.signal.aborted || this.#isOver) return false;
      if (!isQueued) locking.onWaiting(request.holder);
      await locking.pause(request.signal);
    }
  }

  async #query(runner: QueryRunner, sql: string, row: string): Promise<unknown> {
    try {
      return await runner.query(sql, [row]);
    } catch (error) {
      if (this.locking.dialect.classify(error) !== 'rolled-back') throw error;
      throw this.#rolledBack(error);
    }
  }

  /** What fails only where there is no transaction, or one that has failed. */
  async #needed(statement: Promise<unknown>): Promise<void> {
    try {
      await statement;
    } catch (error) {
      throw this.#rolledBack(error);
    }
  }

  #rolledBack(cause: unknown): LockDeadlockError {
    const { key } = this.request;
    return new LockDeadlockError(
      `Lock "${key}" could not be taken in your transaction: the database has rolled the whole transaction back (deadlock); run it again from its beginning.`,
      { key, cause: driverErrorOf(cause) },
    );
  }

  #runner(): QueryRunner {
    const { queryRunner } = this.manager;
    if (queryRunner && isRunning(queryRunner)) return queryRunner;
    const { key } = this.request;
    throw new LockConfigError(
      `Lock "${key}": "transaction" must be the EntityManager of a running transaction, as dataSource.transaction() passes it.`,
      { key },
    );
  }
}

function isRunning(runner: QueryRunner | undefined): boolean {
  return runner !== undefined && runner.isTransactionActive && !runner.isReleased;
}
