import { LockConfigError } from '../../../api/errors.js';
import type { Lock } from '../../../api/lock.js';
import type { SendStatement } from '../connection/dialect.js';
import { faultOf } from '../connection/failure.js';
import { type Session, TransactionEndedError } from '../connection/session.js';

/** The transaction was not committed, or its outcome is unknown. */
export class UncommittedError extends Error {
  constructor(
    /** The outcome of the writes; `replaced`: another transaction was open instead of the lock's, and is rolled back. */
    readonly written: 'rolled-back' | 'unknown' | 'replaced',
    cause: unknown,
  ) {
    super('The transaction of the lock was not committed.', { cause });
  }
}

/** Lends the transaction of a session to the application, for this holder. */
export type LendTransaction = (session: Session, holder: string) => LentTransaction;

/**
 * The transaction of a row lock, lent to the application.
 *
 * The application uses the connection of the lock. Each statement is sent when everything before it was answered, and not at all when the
 * transaction has ended.
 *
 * A savepoint is set before the first of them. It is gone when another transaction is open instead of this one (`COMMIT AND CHAIN`,
 * `BEGIN`, a procedure that commits), which the server's status does not show. So the savepoint is released directly before the
 * COMMIT: if that fails, what would be committed was not written under the lock.
 */
export class LentTransaction {
  /** The connection of the driver, as far as statements go. */
  readonly client: object;
  readonly #savepoint: string;
  #marked: Promise<unknown> | undefined;
  /** The transaction is being committed: a statement that comes now is not awaited by the task, and would follow the proof. */
  #isClosed = false;

  constructor(
    protected readonly session: Session,
    holder: string,
  ) {
    this.#savepoint = `distributed_lock_${holder.slice(0, 8)}`;
    this.client = session.lend(this.#statement);
  }

  /** @throws UncommittedError */
  async commit(): Promise<void> {
    const { session } = this;
    let isSent = false;
    try {
      await session.idle(session.home.commandTimeout);
      if (this.isNested?.()) throw new Error('A nested transaction of the application has not ended: await it.');
      await this.beforeCommit?.();
      this.#isClosed = true;
      if (this.#marked) await session.run(`RELEASE SAVEPOINT ${this.#savepoint}`);
      isSent = true;
      await session.commit();
    } catch (error) {
      const isUnknown = isSent && !(error instanceof TransactionEndedError) && !session.home.dialect.isAnswer(error);
      if (isUnknown) throw new UncommittedError('unknown', error);
      if (!session.isSilent) await this.rollback().catch(() => undefined);
      throw new UncommittedError(faultOf(error) === 'no-savepoint' ? 'replaced' : 'rolled-back', error);
    }
    await this.afterEnd?.('Commit');
  }

  async rollback(): Promise<void> {
    await this.beforeRollback?.();
    this.#isClosed = true;
    await this.session.rollback();
    await this.afterEnd?.('Rollback');
  }

  /** Whether a nested transaction of the application is open. */
  protected isNested?(): boolean;
  /** If it fails, nothing is committed. */
  protected beforeCommit?(): Promise<void>;
  protected beforeRollback?(): Promise<void>;
  protected afterEnd?(by: 'Commit' | 'Rollback'): Promise<void>;

  #mark(): Promise<unknown> {
    if (!this.#marked) {
      this.#marked = this.session.inTransaction(() => this.session.sendNow(`SAVEPOINT ${this.#savepoint}`));
      // The statements behind it fail by themselves then, and may never have looked at it.
      this.#marked.catch(() => undefined);
    }
    return this.#marked;
  }

  readonly #statement: SendStatement = async <T extends readonly [unknown, ...unknown[]]>(send: () => Promise<T>) => {
    if (this.#isClosed) throw new TransactionEndedError();
    let result!: T;
    const marked = this.#mark();
    await this.session.inTransaction(async () => {
      // The savepoint was sent before, and a statement without it is not proved to be in the transaction of the lock.
      await marked;
      result = await send();
      return result[0];
    });
    return result;
  };
}

// By holder id. An id is never used twice, also by several applications of one process.
const lenders = new Map<string, () => LentTransaction>();

/** From now on `lend` lends the transaction of this holder. */
export function offerTransaction(holder: string, lend: () => LentTransaction): void {
  lenders.set(holder, lend);
}

/** From now on it is not lent any more. */
export function withdrawTransaction(holder: string): void {
  lenders.delete(holder);
}

/**
 * The transaction that holds the lock.
 *
 * @param by the function that asks
 * @throws LockLostError when the lock is not held any more
 * @throws LockConfigError when the lock has no such transaction
 */
export function transactionOf(lock: Lock, by: string): LentTransaction {
  const { key, provider } = lock;
  if (lock.keys.length > 1 || lock.mode === 'shared') {
    throw new LockConfigError(
      `Lock "${key}" of provider "${provider}" has no transaction to write in: ${by}() is for exclusive locks of one key.`,
      { key, provider },
    );
  }
  lock.assertHeld();
  const lend = lenders.get(lock.holder);
  if (lend) return lend();
  throw new LockConfigError(
    `Lock "${key}" has no transaction to write in: provider "${provider}" is no provider of row locks. Take the lock from a SqlRowLockProvider or TypeOrmRowLockProvider.`,
    { key, provider },
  );
}

/** The methods that send statements: the `query` of a Client of pg, or the `query`, `execute` and `promise()` of a Connection of mysql2. */
export interface SqlClient {
  // As in the drivers, whose own types say more: `sqlClientOf<PoolClient>(lock)`.
  query(...statement: never[]): unknown;
}

/**
 * The driver's connection inside the transaction that holds the lock, for an exclusive lock of one key of a row lock provider. Drizzle,
 * Kysely and Knex take it as their connection; give its type as they expect it.
 *
 * The writes through it are committed by the release of the lock, and rolled back when the task under `withLock` or a
 * decorator fails, when the lock is lost, and when the process dies. Statements run one after the other. If the transaction was
 * not committed, or its outcome is unknown, the call rejects with `LockLostError` (unless `onLost: 'ignore'`: do not combine the two).
 *
 * The transaction is READ COMMITTED. Do not begin or end one yourself (`BEGIN`, `COMMIT`, `db.transaction()`), and run nothing in it that
 * commits by itself (DDL and TRUNCATE on MySQL): the lock is lost then. Savepoints are allowed, streams of
 * rows are not.
 *
 * @throws LockLostError when the lock is not held any more
 * @throws LockConfigError when the lock has no such transaction
 */
// The caller alone knows the driver.
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
export function sqlClientOf<Client extends object = SqlClient>(lock: Lock): Client {
  return transactionOf(lock, 'sqlClientOf').client as Client;
}
