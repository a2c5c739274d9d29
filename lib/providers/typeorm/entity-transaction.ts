import { AsyncLocalStorage } from 'node:async_hooks';
import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import { safeText } from '../../api/cause.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { LentTransaction } from '../sql/row/lent-transaction.js';
import type { Session } from '../sql/connection/session.js';

/** TypeORM's state of a transaction in flight. */
interface Runner extends QueryRunner {
  transactionDepth: number;
}

/** In which nested transaction the code runs. One storage for all: on Node 20 each would slow every promise of the process permanently. */
const nestedIn = new AsyncLocalStorage<{ readonly of: EntityTransaction; readonly depth: number }>();

type TransactionEvent = `${'Before' | 'After'}Transaction${'Start' | 'Commit' | 'Rollback'}`;

/**
 * The transaction of a row lock as TypeORM uses it: through a QueryRunner of the application's own DataSource, so that its entities,
 * subscribers and logger apply. That runner has the connection of the lock.
 */
export class EntityTransaction extends LentTransaction {
  readonly #runner: Runner;
  readonly #started: Promise<void>;
  /** How many nested transactions are open. */
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
    // Subscribers are called in this tick. One that fails makes the COMMIT fail.
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

  /** From now on entities that were loaded here load their relations by runners of their own. */
  protected override afterEnd(by: 'Commit' | 'Rollback'): Promise<void> {
    Object.assign(this.#runner, { isReleased: true, isTransactionActive: false });
    return this.#tellEnd(`AfterTransaction${by}`);
  }

  /** TypeORM's nested transactions are savepoints, which form one stack: two side by side would release or undo parts of each other. */
  #refuseNestedSideBySide(): void {
    const { manager } = this;
    const transaction = manager.transaction.bind(manager) as (...args: unknown[]) => Promise<unknown>;
    const nested = async (...args: unknown[]): Promise<unknown> => {
      const around = nestedIn.getStore();
      if (this.#nested !== (around?.of === this ? around.depth : 0)) {
        throw new Error(
          'Another nested transaction is open in the transaction of the lock: await it before the next one.',
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

  /** `typeorm-transactional` gives every repository the manager of its own transaction, unless the repository itself has one. */
  #keepRepositories(): void {
    const { manager } = this;
    const getRepository = manager.getRepository.bind(manager) as (target: unknown) => object;
    const keeping = (target: unknown) => Object.defineProperty(getRepository(target), 'manager', { value: manager });
    Object.assign(manager, { getRepository: keeping });
  }

  async #tell(event: TransactionEvent): Promise<void> {
    await this.#runner.broadcaster.broadcast(event);
  }

  /** A subscriber that fails here changes nothing about the end. */
  async #tellEnd(event: TransactionEvent): Promise<void> {
    await this.#tell(event).catch((error: unknown) => {
      const { name, logger } = this.context;
      logger.error(
        `A subscriber failed at the end of a transaction of lock provider "${name}": ${safeText(String(error))}`,
      );
    });
  }
}
