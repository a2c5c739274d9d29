import {
  type AcquireRequest,
  type Finding,
  type Grant,
  type Holder,
  type LockCapabilities,
  type LockProvider,
  type ProviderContext,
  type ReleaseManner,
  type ReleaseOutcome,
  type Renewal,
  type RenewOutcome,
} from '../../../engine/lock-provider.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../../lock/errors.js';
import { BorrowedTransaction } from './borrowed-transaction.js';
import { connect, type Database } from '../database.js';
import { driverErrorOf } from '../dialect.js';
import { counterNameOf, rowNameOf } from '../lock-name.js';
import { purge, type PurgeOptions, readUnusedFor } from '../purge.js';
import { RowAttempt, type RowLocking } from './row-attempt.js';
import { readOptions, type RowLockSettings, type TypeOrmRowLockProviderOptions } from './row-lock-options.js';

/**
 * Locks on rows of a table, by `SELECT … FOR UPDATE` in a transaction of their own: MariaDB from 10.6, MySQL from 8.0.1,
 * Postgres from 9.6 on.
 *
 * Promised: mutual exclusion and shared locks while there is one writer, and for what is written through
 * {@link entityManagerOf} an absolute guarantee: it is committed with the lock held, or not at all. Whoever is frozen or cut
 * off loses the lock when the session guard has passed (default 30 s) and knows it by then; a process that dies, at once.
 * Waiters are served in the server's order.
 *
 * It costs one connection for each key held or waited for, of a pool of our own. What breaks it: several writers (Galera,
 * multi-primary: refused by the boot doctor), a fail-over that loses the connection, for writes elsewhere a pause between the
 * last check and the write.
 */
export class TypeOrmRowLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities;
  readonly #settings: RowLockSettings;
  #running: RowLocks | undefined;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: TypeOrmRowLockProviderOptions) {
    this.#settings = readOptions(options);
    this.capabilities = {
      shared: true,
      fair: false,
      fencing: this.#settings.fencing,
      lease: 'session',
      minHold: false,
      forceRelease: false,
      queue: 'engine',
    };
  }

  async start(context: ProviderContext): Promise<void> {
    if (this.#running) {
      throw new LockConfigError(`Lock provider "${context.name}" was started before: make a new one.`, {
        provider: context.name,
      });
    }
    this.#running = new RowLocks(context, this.#settings);
    await this.#running.connected();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#started().acquire(request);
  }

  renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    return this.#started().renew(renewals);
  }

  release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    return this.#started().release(holder, manner);
  }

  check(): Promise<readonly Finding[]> {
    return this.#started().check();
  }

  /**
   * Deletes the rows that were made more than `unusedFor` ago (1 s to 24.8 days) and that nobody holds; a row lock leaves no
   * trace of its use in its row. Also those of leases in the same table that ended so long ago. Answers how many. A key that is used
   * again costs one statement more the first time, and while its row goes an attempt that does not wait may find it busy.
   */
  purge(options: PurgeOptions): Promise<number> {
    return this.#started().purge(readUnusedFor(options));
  }

  async stop(): Promise<void> {
    await this.#running?.close();
  }

  #started(): RowLocks {
    if (this.#running) return this.#running;
    throw new LockConfigError('A TypeOrmRowLockProvider was used before it was started.');
  }
}

/** A provider at work: from `start` to `stop`. */
class RowLocks {
  readonly #attempts = new Map<string, RowAttempt | BorrowedTransaction>();
  #database: Promise<Database> | undefined;

  constructor(
    private readonly context: ProviderContext,
    private readonly settings: RowLockSettings,
  ) {}

  /** The database; connected anew by whoever needs it, if that has failed so far. */
  connected(): Promise<Database> {
    this.#database ??= connect(this.settings, this.context).catch((error: unknown) => {
      this.#database = undefined;
      if (LockError.is(error)) throw error;
      const { name } = this.context;
      throw new LockUnavailableError(
        `Lock provider "${name}" cannot reach its database: check its address and credentials, and that it is up.`,
        { provider: name, cause: driverErrorOf(error) },
      );
    });
    return this.#database;
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key, holder } = request;
    const held = this.#attempts.get(holder)?.grant;
    if (held) return held;
    try {
      const attempt = this.#attemptOf(request, await this.connected());
      this.#attempts.set(holder, attempt);
      const answer = await attempt.acquire();
      if (answer === 'busy') this.#forget(holder, attempt);
      return answer;
    } catch (error) {
      const attempt = this.#attempts.get(holder);
      if (attempt) this.#forget(holder, attempt);
      if (LockError.is(error)) throw error;
      const { name } = this.context;
      throw new LockUnavailableError(
        `Lock "${key}" of provider "${name}": the database did not answer or refused; check the server and its log.`,
        { key, provider: name, cause: driverErrorOf(error) },
      );
    }
  }

  renew(renewals: readonly Renewal[]): Promise<RenewOutcome[]> {
    return Promise.all(renewals.map(async ({ grant }) => (await this.#attempts.get(grant.holder)?.renew()) ?? 'lost'));
  }

  async release({ holder }: Holder, { failed }: ReleaseManner): Promise<ReleaseOutcome> {
    const attempt = this.#attempts.get(holder);
    if (!attempt) return 'lost';
    this.#attempts.delete(holder);
    return attempt.release(failed);
  }

  async check(): Promise<readonly Finding[]> {
    const { dialect, sessions } = await this.connected();
    return dialect.examine(sessions.run);
  }

  async purge(unusedFor: number): Promise<number> {
    const { sessions } = await this.connected();
    const { database, table } = this.settings;
    return purge(sessions, database, table, unusedFor);
  }

  async close(): Promise<void> {
    const database = await this.#database?.catch(() => undefined);
    await database?.sessions.close();
  }

  #attemptOf(request: AcquireRequest, { dialect, sessions, table }: Database): RowAttempt | BorrowedTransaction {
    const { context } = this;
    const { namespace, clock, random } = context;
    const locking: RowLocking = {
      clock,
      dialect,
      table,
      guard: this.settings.terms.guard,
      openSession: ({ key, wait }, left) => sessions.take(key, wait, left),
      counterOf: (key) => (this.settings.fencing ? counterNameOf(namespace, key) : undefined),
      onWaiting: (holder) => {
        context.emit({ type: 'waiting', holder });
      },
      onLost: (holder, cause) => {
        context.emit({ type: 'lost', holder, cause: driverErrorOf(cause) });
      },
    };
    const row = rowNameOf(namespace, request.key);
    const { transaction } = request.options;
    return transaction
      ? new BorrowedTransaction(locking, request, row, transaction, random)
      : new RowAttempt(locking, request, row);
  }

  #forget(holder: string, attempt: RowAttempt | BorrowedTransaction): void {
    if (this.#attempts.get(holder) === attempt) this.#attempts.delete(holder);
  }
}
