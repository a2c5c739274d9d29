import {
  type AcquireRequest,
  type Finding,
  type Grant,
  type Holder,
  HolderTable,
  type LockCapabilities,
  type LockProvider,
  type ProviderContext,
  type Records,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../../engine/lock-provider.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../../lock/errors.js';
import type { LockInfo } from '../../../lock/lock-info.js';
import { driverErrorOf } from '../dialect.js';
import { leaseNameOf } from '../lock-name.js';
import { type PurgeOptions, readUnusedFor } from '../purge.js';
import { ServerRecords } from '../records.js';
import type { Database } from '../database.js';
import type { LeaseDatabase } from './lease-database.js';
import { Renewals } from './renewals.js';
import { connectToServer } from './server-leases.js';
import { connectToSqlite } from './sqlite-leases.js';
import { VersionAttempt, type VersionLocking } from './version-attempt.js';
import {
  readOptions,
  type TypeOrmVersionLockProviderOptions,
  type VersionLockSettings,
} from './version-lock-options.js';

/**
 * Leases in the rows of a table, each with a version column that is the fencing token: MySQL, MariaDB, Postgres, SQLite
 * (better-sqlite3, and sql.js in one process).
 *
 * Promised: mutual exclusion while there is one writer and its wall clock is not stepped. Each operation is one statement that
 * compares what it has seen and sets what it wants by the database's clock; the row stays, so versions outlive releases,
 * crashes and restarts. Held and waiting locks cost no connection. A holder knows of a loss by its deadline.
 *
 * What breaks it: several writers, each with a clock and rows of its own (refused at start); a clock of the database that is stepped (forwards:
 * leases end early; backwards: they last longer, and tokens grow all the same); a fail-over or a backup that loses committed
 * rows. As with every lease, a pause between the last check and a write: let what you write to compare tokens.
 */
export class TypeOrmVersionLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities = {
    shared: false,
    fair: false,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    queue: 'engine',
  };
  /** On a server; not in SQLite. */
  readonly records?: Records;
  readonly #settings: VersionLockSettings;
  #running: VersionLocks | undefined;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: TypeOrmVersionLockProviderOptions) {
    const settings = readOptions(options);
    this.#settings = settings;
    const { database } = settings;
    if (database !== 'sqlite') this.records = new ServerRecords({ ...settings, database }, () => this.#server());
  }

  async start(context: ProviderContext): Promise<void> {
    if (this.#running) {
      throw new LockConfigError(`Lock provider "${context.name}" was started before: make a new one.`, {
        provider: context.name,
      });
    }
    this.#running = new VersionLocks(context, this.#settings);
    await this.#running.connected();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#started().acquire(request);
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#started().renew(grant, lease);
  }

  release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    return this.#started().release(holder, manner);
  }

  inspect(key: string): Promise<LockInfo | null> {
    return this.#started().inspect(key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#started().forceRelease(key);
  }

  check(): Promise<readonly Finding[]> {
    return this.#started().check();
  }

  /**
   * Deletes the rows of keys that nobody has held or parked for `unusedFor` (1 s to 24.8 days), never one that is held or parked,
   * and those of row locks in the same table that were made so long ago and that nobody holds. Answers how many. The next token of a
   * deleted row begins at the time of the server, which is past its last one, unless the clock was set back since.
   */
  purge(options: PurgeOptions): Promise<number> {
    return this.#started().purge(readUnusedFor(options));
  }

  async stop(): Promise<void> {
    await this.#running?.close();
  }

  async #server(): Promise<Database> {
    const { server } = await this.#started().connected();
    if (server) return server;
    throw new LockConfigError('SQLite keeps no records.');
  }

  #started(): VersionLocks {
    if (this.#running) return this.#running;
    throw new LockConfigError('A TypeOrmVersionLockProvider was used before it was started.');
  }
}

/** A provider at work: from `start` to `stop`. */
class VersionLocks {
  readonly #attempts = new HolderTable<VersionAttempt>();
  readonly #background = new Set<Promise<unknown>>();
  readonly #renewals: Renewals;
  #database: Promise<LeaseDatabase> | undefined;

  constructor(
    private readonly context: ProviderContext,
    private readonly settings: VersionLockSettings,
  ) {
    this.#renewals = new Renewals(context.clock, async () => (await this.connected()).leases);
  }

  /** The database; connected anew by whoever needs it, if that has failed so far. */
  connected(): Promise<LeaseDatabase> {
    this.#database ??= this.#connect().catch((error: unknown) => {
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
    const database = await this.connected();
    const attempt = this.#attempts.get(holder) ?? this.#attemptOf(request, database);
    this.#attempts.set(holder, attempt);
    try {
      const answer = await attempt.acquire(request);
      if (answer === 'busy') this.#attempts.delete(holder);
      return answer;
    } catch (error) {
      // The engine asks again or releases: until then the attempt knows what may still arrive.
      if (LockError.is(error)) throw error;
      throw this.#unavailable(key, error);
    }
  }

  renew({ key, holder, fencingToken }: Grant, lease: number): Promise<RenewOutcome> {
    const held = { name: this.#nameOf(key), holder, version: fencingToken ?? 0n };
    return this.#renewals.add(held, lease, this.#attempts.get(holder)?.leaseOf(lease) ?? lease);
  }

  async release({ key, holder }: Holder, { keepFor }: ReleaseManner): Promise<ReleaseOutcome> {
    let outcome: ReleaseOutcome;
    try {
      const database = await this.connected();
      const attempt = this.#attempts.get(holder) ?? this.#attemptOf({ key, holder }, database);
      outcome = await attempt.release(keepFor);
    } catch {
      return 'unknown';
    }
    if (outcome !== 'unknown') this.#attempts.delete(holder);
    return outcome;
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const lease = await this.#operate(key, ({ leases }) => leases.look(this.#nameOf(key)));
    if (!lease || lease.remaining <= 0) return null;
    const { holder, remaining, version } = lease;
    return {
      key,
      state: holder === undefined ? 'parked' : 'held',
      mode: 'exclusive',
      holders: holder === undefined ? 0 : 1,
      waiters: null,
      expiresIn: remaining,
      fencingToken: version,
    };
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#operate(key, ({ leases }) => leases.forceRelease(this.#nameOf(key)));
  }

  async check(): Promise<readonly Finding[]> {
    const database = await this.connected();
    return database.check();
  }

  async purge(unusedFor: number): Promise<number> {
    const database = await this.connected();
    return database.purge(unusedFor);
  }

  async close(): Promise<void> {
    await Promise.all(this.#background);
    const database = await this.#database?.catch(() => undefined);
    await database?.close();
  }

  #connect(): Promise<LeaseDatabase> {
    const { context, settings } = this;
    const { database } = settings;
    return database === 'sqlite'
      ? connectToSqlite(settings, context)
      : connectToServer({ ...settings, database }, context);
  }

  #attemptOf({ key, holder }: Pick<Holder, 'key' | 'holder'>, database: LeaseDatabase): VersionAttempt {
    const { context } = this;
    const locking: VersionLocking = {
      clock: context.clock,
      random: context.random,
      database,
      onWaiting: (waiter) => {
        context.emit({ type: 'waiting', holder: waiter });
      },
      inBackground: (work) => {
        this.#background.add(work);
        void work.finally(() => this.#background.delete(work));
      },
    };
    return new VersionAttempt(locking, this.#nameOf(key), holder);
  }

  #nameOf(key: string): string {
    return leaseNameOf(this.context.namespace, key);
  }

  async #operate<T>(key: string, operation: (database: LeaseDatabase) => Promise<T>): Promise<T> {
    const database = await this.connected();
    try {
      return await operation(database);
    } catch (error) {
      throw LockError.is(error) ? error : this.#unavailable(key, error);
    }
  }

  #unavailable(key: string, error: unknown): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `Lock "${key}" of provider "${name}": the database did not answer or refused, or SQLite was locked by a transaction; check the server and its log, and keep transactions short.`,
      { key, provider: name, cause: driverErrorOf(error) },
    );
  }
}
