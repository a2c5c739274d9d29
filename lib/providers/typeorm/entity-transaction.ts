import { AsyncLocalStorage } from 'node:async_hooks';
import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { errorText } from '../../api/cause.js';
import { LockConfigError } from '../../api/errors.js';
import type { Lock } from '../../api/lock.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { LentTransaction, transactionOf } from '../sql/row/lent-transaction.js';
import type { Session } from '../sql/connection/session.js';

/** TypeORM's state for an open transaction. */
interface Runner extends QueryRunner {
  transactionDepth: number;
}

/**
 * The nested transaction in which the code runs. All transactions share one AsyncLocalStorage, because on Node 20 each
 * instance permanently slows down every promise in the process.
 */
const nestedIn = new AsyncLocalStorage<{ readonly of: EntityTransaction; readonly depth: number }>();

type TransactionEvent = `${'Before' | 'After'}Transaction${'Start' | 'Commit' | 'Rollback'}`;

/**
 * A row lock's transaction as TypeORM uses it: through a QueryRunner from the application's own DataSource, with its
 * entities, subscribers, and logger, but on the lock's connection.
 */
export class EntityTransaction extends LentTransaction {
  readonly #runner: Runner;
  readonly #started: Promise<void>;
  /** The number of open nested transactions. */
  #nested = 0;

  constructor(
    session: Session,
    holder: string,
    dataSource: DataSource,
    private readonly context: BackendContext,
  ) {
    super(session, holder);
    this.#runner = dataSource.createQueryRunner('master') as Runner;
    const connect = () => Promise.resolve(this.client);
    Object.assign(this.#runner, { isTransactionActive: true, transactionDepth: 1, connect });
    this.#refuseNestedSideBySide();
    this.#keepRepositories();
    // Subscribers are called in this tick. If one throws, the COMMIT fails.
    this.#started = this.#tell('BeforeTransactionStart').then(() => this.#tell('AfterTransactionStart'));
    this.#started.catch(() => undefined);
  }

  get manager(): EntityManager {
    return this.#runner.manager;
  }

  protected override isNested(): boolean {
    return this.#nested > 0 || this.#runner.transactionDepth > 1;
  }

  protected override async beforeCommit(): Promise<void> {
    await this.#started;
    await this.#tell('BeforeTransactionCommit');
  }

  protected override beforeRollback(): Promise<void> {
    return this.#tellEnd('BeforeTransactionRollback');
  }

  /** From now on, entities loaded here use their own query runners to load relations. */
  protected override afterEnd(by: 'Commit' | 'Rollback'): Promise<void> {
    Object.assign(this.#runner, { isReleased: true, isTransactionActive: false });
    return this.#tellEnd(`AfterTransaction${by}`);
  }

  /**
   * TypeORM's nested transactions are savepoints on one stack. If two ran concurrently, each would release or undo
   * parts of the other.
   */
  #refuseNestedSideBySide(): void {
    const { manager } = this;
    const transaction = manager.transaction.bind(manager) as (...args: unknown[]) => Promise<unknown>;
    const nested = async (...args: unknown[]): Promise<unknown> => {
      const around = nestedIn.getStore();
      if (this.#nested !== (around?.of === this ? around.depth : 0)) {
        throw new Error(
          "Another nested transaction is open in the lock's transaction: await it before starting the next.",
        );
      }
      this.#nested += 1;
      try {
        return await nestedIn.run({ of: this, depth: this.#nested }, () => transaction(...args));
      } finally {
        this.#nested -= 1;
      }
    };
    manager.transaction = nested;
  }

  /**
   * `typeorm-transactional` gives every repository the manager of its own transaction, unless the repository itself has
   * one.
   */
  #keepRepositories(): void {
    const { manager } = this;
    const getRepository = manager.getRepository.bind(manager) as (target: unknown) => object;
    const keeping = (target: unknown) => Object.defineProperty(getRepository(target), 'manager', { value: manager });
    Object.assign(manager, { getRepository: keeping });
  }

  async #tell(event: TransactionEvent): Promise<void> {
    await this.#runner.broadcaster.broadcast(event);
  }

  /** If a subscriber throws here, the transaction has already ended. */
  async #tellEnd(event: TransactionEvent): Promise<void> {
    await this.#tell(event).catch((error: unknown) => {
      const { name, logger } = this.context;
      logger.error(`A subscriber failed at the end of a transaction in lock provider "${name}": ${errorText(error)}`);
    });
  }
}

/**
 * The EntityManager of the transaction that holds the lock, for an exclusive {@link TypeOrmRowLockProvider} lock on one
 * key. It has the entities and subscribers of the provider's DataSource, once that DataSource is initialized.
 *
 * Writes through it are committed when the lock is released, and rolled back when the `withLock` task or decorated
 * method fails, when the lock is lost, or when the process dies. Statements run one at a time. If the transaction was
 * not committed, or its outcome is unknown, the call rejects with `LockLostError` (unless `onLost: 'ignore'` is set,
 * which you should avoid here).
 *
 * The transaction is READ COMMITTED. Don't end it yourself, and don't run anything in it that commits implicitly (DDL
 * and TRUNCATE on MySQL). Otherwise, the lock is lost: immediately if the server's response shows it, otherwise at the
 * next heartbeat, and before the COMMIT at the latest. Writes made before the loss is detected are committed without
 * the lock.
 *
 * The lock is lost if a single statement takes longer than the session guard. For a lock taken with `acquire`,
 * `lock.release()` commits, no matter what happened before.
 *
 * @throws LockLostError when the lock is no longer held.
 * @throws LockConfigError when the lock has no such transaction.
 */
export function entityManagerOf(lock: Lock): EntityManager {
  const transaction = transactionOf(lock, 'entityManagerOf');
  if (transaction instanceof EntityTransaction) return transaction.manager;
  const { key, provider } = lock;
  throw new LockConfigError(
    `Lock "${key}" has no EntityManager: provider "${provider}" is not a TypeOrmRowLockProvider. Use sqlClientOf().`,
    { key, provider },
  );
}
