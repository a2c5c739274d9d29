import { AsyncLocalStorage } from 'node:async_hooks';
import type { EventEmitter } from 'node:events';
import { Readable } from 'node:stream';
import type { DataSource, EntityManager, QueryRunner } from 'typeorm';
import type { OpenStream, SendStatement } from '../dialect.js';
import { type Session, TransactionEndedError } from '../session.js';

/** TypeORM's state of a transaction in flight. */
interface Runner extends QueryRunner {
  transactionDepth: number;
}

/** In which nested transaction the code runs. One storage for all: on Node 20 each would slow every promise of the process permanently. */
const nestedIn = new AsyncLocalStorage<{ readonly of: LentTransaction; readonly depth: number }>();

type TransactionEvent = `${'Before' | 'After'}Transaction${'Start' | 'Commit' | 'Rollback'}`;

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

/**
 * The transaction of a row lock, lent to the application.
 *
 * The application uses it through a QueryRunner of its own DataSource, so that its entities, subscribers and logger apply. That
 * runner has the connection of the lock. Each statement is sent when everything before it was answered, and not at all when the
 * transaction has ended.
 *
 * A savepoint is set before the first of them. It is gone when another transaction is open instead of this one (`COMMIT AND CHAIN`,
 * `BEGIN`, a procedure that commits), which the server's status does not show. So the savepoint is released directly before the
 * COMMIT: if that fails, what would be committed was not written under the lock.
 */
export class LentTransaction {
  readonly #runner: Runner;
  readonly #savepoint: string;
  readonly #started: Promise<void>;
  #marked: Promise<unknown> | undefined;
  #isStreaming = false;
  /** It is being committed: a statement that comes now is not awaited by the task, and would follow the proof. */
  #isClosed = false;
  /** How many nested transactions are open. */
  #nested = 0;

  constructor(
    private readonly session: Session,
    dataSource: DataSource,
    holder: string,
    private readonly onSubscriberFailed: (error: unknown) => void,
  ) {
    this.#savepoint = `distributed_lock_${holder.slice(0, 8)}`;
    this.#runner = dataSource.createQueryRunner('master') as Runner;
    const connection = session.lend(this.#statement, this.#stream);
    const connect = async (): Promise<unknown> => {
      this.#assertOpen();
      this.#marked ??= session.inTransaction(() => session.sendNow(`SAVEPOINT ${this.#savepoint}`));
      await this.#marked;
      // A stream is opened in the tick of this answer, and cannot wait for its turn.
      await session.idle();
      return connection;
    };
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

  /** @param timeout how long the server may take for the COMMIT, in ms. @throws UncommittedError */
  async commit(timeout: number): Promise<void> {
    const { session } = this;
    let isSent = false;
    try {
      // A stream that was left early still receives its rows.
      await session.inTime(session.idle());
      if (this.#nested > 0 || this.#isStreaming || this.#runner.transactionDepth > 1) {
        throw new Error('A nested transaction, or a stream of rows, of the application has not ended: await it.');
      }
      await this.#started;
      await this.#tell('BeforeTransactionCommit');
      this.#isClosed = true;
      if (this.#marked) await session.run(`RELEASE SAVEPOINT ${this.#savepoint}`);
      isSent = true;
      await session.commit(timeout);
    } catch (error) {
      const isUnknown = isSent && !(error instanceof TransactionEndedError) && !session.dialect.isAnswer(error);
      if (isUnknown) throw new UncommittedError('unknown', error);
      if (!session.isSilent) await this.rollback().catch(() => undefined);
      throw new UncommittedError(session.dialect.isNoSavepoint(error) ? 'replaced' : 'rolled-back', error);
    }
    this.#end();
    await this.#tellEnd('AfterTransactionCommit');
  }

  async rollback(): Promise<void> {
    await this.#tellEnd('BeforeTransactionRollback');
    this.#isClosed = true;
    await this.session.rollback();
    this.#end();
    await this.#tellEnd('AfterTransactionRollback');
  }

  /** From now on entities that were loaded here load their relations by runners of their own. */
  #end(): void {
    Object.assign(this.#runner, { isReleased: true, isTransactionActive: false });
  }

  readonly #statement: SendStatement = async <T extends readonly [unknown, ...unknown[]]>(send: () => Promise<T>) => {
    this.#assertOpen();
    let result!: T;
    await this.session.inTransaction(async () => {
      result = await send();
      return result[0];
    });
    return result;
  };

  readonly #stream: OpenStream = (open, endsWith) => {
    this.#assertOpen();
    if (this.session.inFlight > 0) {
      throw new Error(
        'Another statement is in flight in the transaction of the lock: await it before you open a stream of rows.',
      );
    }
    let rows: ReturnType<typeof open> | undefined;
    const turn = this.session.inTransaction(() => {
      const opened = (rows = open());
      this.#isStreaming = true;
      return new Promise<void>((resolve, reject) => {
        opened.once(endsWith, () => {
          this.#isStreaming = false;
          resolve();
        });
        opened.once('error', (error) => {
          this.#isStreaming = false;
          reject(error as Error);
        });
      });
    });
    turn.catch((error: unknown) => {
      // mysql2 does not notify a stream that its connection has ended.
      if (rows && this.#isStreaming) fail(rows, error);
    });
    // Nothing was in flight, so it has been opened by now, or will not be.
    if (!rows) throw new TransactionEndedError();
    return rows;
  };

  #assertOpen(): void {
    if (this.#isClosed) throw new TransactionEndedError();
    if (!this.#isStreaming) return;
    throw new Error(
      'A stream of rows is open in the transaction of the lock: read it to its end before the next statement.',
    );
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
    await this.#tell(event).catch(this.onSubscriberFailed);
  }
}

function fail(rows: EventEmitter, error: unknown): void {
  if (rows instanceof Readable) rows.destroy(error as Error);
  else rows.emit('error', error);
}
