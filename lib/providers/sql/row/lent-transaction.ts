import { LockConfigError } from '../../../api/errors.js';
import type { Lock } from '../../../api/lock.js';
import type { ReleaseOutcome } from '../../../api/lock-provider.js';
import type { SendStatement } from '../connection/dialect.js';
import { faultOf } from '../connection/failure.js';
import { type Session, TransactionEndedError } from '../connection/session.js';

/** Lends a session's transaction to the application, on behalf of this holder. */
export type LendTransaction = (session: Session, holder: string) => LentTransaction;

/**
 * A row lock's transaction, lent to the application.
 *
 * The application uses the lock's connection. Each statement is sent after all previous ones have been answered, and
 * is rejected if the transaction has ended.
 *
 * A savepoint is set before the first statement. It no longer exists if another transaction has replaced this one
 * (`COMMIT AND CHAIN`, `BEGIN`, a procedure that commits), which the server's status doesn't show. So the savepoint is
 * released right before the COMMIT. If that fails, the writes weren't made under the lock.
 */
export class LentTransaction {
  /** The driver's connection, restricted to statements. */
  readonly client: object;
  readonly #savepoint: string;
  #marked: Promise<unknown> | undefined;
  /**
   * Whether the commit has started. Statements that arrive now weren't awaited by the task and would escape the
   * savepoint check.
   */
  #isClosed = false;

  constructor(
    protected readonly session: Session,
    holder: string,
  ) {
    this.#savepoint = `distributed_lock_${holder.slice(0, 8)}`;
    this.client = session.lend(this.#statement);
  }

  /**
   * Resolves to `released` once it is committed. Otherwise, the writes were rolled back, their outcome is unknown, or
   * the lock was `lost` earlier: another transaction was open instead of the lock's, and was rolled back.
   */
  async commit(): Promise<ReleaseOutcome> {
    const { session } = this;
    let isSent = false;
    try {
      await session.idle();
      if (this.isNested?.()) throw new Error('A nested transaction is open. Await it before the lock is released.');
      await this.beforeCommit?.();
      this.#isClosed = true;
      if (this.#marked) await session.run(`RELEASE SAVEPOINT ${this.#savepoint}`);
      isSent = true;
      await session.commit();
    } catch (cause) {
      const isUnknown = isSent && !(cause instanceof TransactionEndedError) && !session.home.dialect.isAnswer(cause);
      if (isUnknown) return { written: 'unknown', cause };
      if (!session.isSilent) await this.rollback().catch(() => undefined);
      return faultOf(cause) === 'no-savepoint' ? 'lost' : { written: 'rolled-back', cause };
    }
    await this.afterEnd?.('Commit');
    return 'released';
  }

  async rollback(): Promise<void> {
    await this.beforeRollback?.();
    this.#isClosed = true;
    await this.session.rollback();
    await this.afterEnd?.('Rollback');
  }

  /** Whether the application has a nested transaction open. */
  protected isNested?(): boolean;
  /** If this fails, nothing is committed. */
  protected beforeCommit?(): Promise<void>;
  protected beforeRollback?(): Promise<void>;
  protected afterEnd?(by: 'Commit' | 'Rollback'): Promise<void>;

  #mark(): Promise<unknown> {
    if (!this.#marked) {
      this.#marked = this.session.setSavepoint(this.#savepoint);
      // If this fails, queued statements fail on their own, perhaps without awaiting this promise.
      this.#marked.catch(() => undefined);
    }
    return this.#marked;
  }

  readonly #statement: SendStatement = async <T extends readonly [unknown, ...unknown[]]>(send: () => Promise<T>) => {
    if (this.#isClosed) throw new TransactionEndedError();
    let result!: T;
    const marked = this.#mark();
    await this.session.inTransaction(async () => {
      // The savepoint was sent first. Without it, nothing proves that a statement is in the lock's transaction.
      await marked;
      result = await send();
      return result[0];
    });
    return result;
  };
}

/**
 * Creates the transactions that can be lent, by holder id. Ids are unique, even across several applications in one
 * process.
 */
export const lenders = new Map<string, () => LentTransaction>();

/**
 * The transaction that holds the lock.
 *
 * @param by the calling function's name, for messages
 * @throws LockLostError if the lock is no longer held
 * @throws LockConfigError if the lock has no such transaction
 */
export function transactionOf(lock: Lock, by: string): LentTransaction {
  const { key, provider } = lock;
  if (lock.keys.length > 1 || lock.mode === 'shared') {
    throw new LockConfigError(
      `Lock "${key}" of provider "${provider}" has no transaction to write in. ${by}() only supports exclusive locks on one key.`,
      { key, provider },
    );
  }
  lock.assertHeld();
  const lend = lenders.get(lock.holder);
  if (lend) return lend();
  throw new LockConfigError(
    `Lock "${key}" has no transaction to write in, because provider "${provider}" does not use row locks. Use a SqlRowLockProvider or TypeOrmRowLockProvider.`,
    { key, provider },
  );
}

/**
 * The methods that send statements: `query` of a pg Client, or `query`, `execute`, and `promise()` of a mysql2
 * Connection.
 */
export interface SqlClient {
  // For a driver's own, more specific type, use `sqlClientOf<PoolClient>(lock)`.
  query(...statement: never[]): unknown;
}

/**
 * The driver's connection in the transaction that holds the lock: an exclusive lock on one key, from a row lock
 * provider. Drizzle, Kysely, and Knex accept it as a connection; pass the type they expect.
 *
 * Writes through it are committed when the lock is released. They are rolled back if the `withLock` task or the
 * decorated method fails, if the lock is lost, or if the process dies. Statements run one after another. If the
 * transaction wasn't committed, or its outcome is unknown, the call rejects with `LockLostError` (unless
 * `onLost: 'ignore'` is set, so don't combine the two).
 *
 * The transaction is READ COMMITTED. Don't begin or end one yourself (`BEGIN`, `COMMIT`, `db.transaction()`), and don't
 * run anything that commits implicitly (DDL and TRUNCATE on MySQL), because doing so loses the lock. Savepoints are
 * allowed; row streaming isn't.
 *
 * @throws LockLostError if the lock is no longer held
 * @throws LockConfigError if the lock has no such transaction
 */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters -- only the caller knows the driver
export function sqlClientOf<Client extends object = SqlClient>(lock: Lock): Client {
  return transactionOf(lock, 'sqlClientOf').client as Client;
}
