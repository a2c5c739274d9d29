import {
  type AcquireRequest,
  type Finding,
  type Grant,
  type Holder,
  type LockCapabilities,
  type LockProvider,
  pause,
  type ProviderContext,
  type Records,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../../engine/lock-provider.js';
import { toMilliseconds } from '../../../lock/duration.js';
import type { Database } from '../database.js';
import { type DatabaseSettings, readOptions } from '../database-options.js';
import { driverErrorOf } from '../dialect.js';
import { counterNameOf, rowNameOf } from '../lock-name.js';
import { purge, type PurgeOptions, readUnusedFor } from '../purge.js';
import { ServerRecords } from '../records.js';
import { type LockAttempt, SessionLocks } from '../session-locks.js';
import { LentTransaction } from './lent-transaction.js';
import { RowAttempt, type RowLocking } from './row-attempt.js';
import type { TypeOrmRowLockProviderOptions } from './row-lock-options.js';

// Before a row is asked for again, in ms: half of it at least.
const PAUSE = 60;

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
 * multi-primary: refused at start), a fail-over that loses the connection, for writes elsewhere a pause between the
 * last check and the write.
 */
export class TypeOrmRowLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities;
  readonly #settings: DatabaseSettings;
  readonly records: Records;
  readonly #locks: SessionLocks;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: TypeOrmRowLockProviderOptions) {
    const settings = readOptions('TypeOrmRowLockProvider', options, 1);
    const commitPatience = toMilliseconds(options.commitTimeout ?? '30s', 'commitTimeout', { min: 50 });
    this.capabilities = {
      shared: true,
      fair: false,
      fencing: settings.fencing,
      lease: 'session',
      minHold: false,
      forceRelease: false,
      queue: 'engine',
    };
    this.#settings = settings;
    this.#locks = new SessionLocks(settings, {
      needsTable: true,
      prepare: (database, context) => (request) => attemptOf(request, database, context, settings, commitPatience),
    });
    this.records = new ServerRecords(settings, () => this.#locks.database());
  }

  start(context: ProviderContext): Promise<void> {
    return this.#locks.start(context);
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#locks.acquire(request);
  }

  renew(grant: Grant): Promise<RenewOutcome> {
    return this.#locks.renew(grant);
  }

  release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    return this.#locks.release(holder, manner);
  }

  check(): Promise<readonly Finding[]> {
    return this.#locks.check();
  }

  /**
   * Deletes the rows that were made more than `unusedFor` ago (1 s to 24.8 days) and that nobody holds; a row lock leaves no
   * trace of its use in its row. Also those of leases in the same table that ended so long ago. Answers how many. A key that is used
   * again costs one statement more the first time, and while its row goes an attempt that does not wait may find it busy.
   */
  async purge(options: PurgeOptions): Promise<number> {
    const unusedFor = readUnusedFor(options);
    const { sessions } = await this.#locks.database();
    return purge(sessions, this.#settings.database, this.#settings.table, unusedFor);
  }

  stop(): Promise<void> {
    return this.#locks.stop();
  }
}

function attemptOf(
  request: AcquireRequest,
  { dialect, sessions, table }: Database,
  context: ProviderContext,
  settings: DatabaseSettings,
  commitPatience: number,
): LockAttempt {
  const { namespace, clock, random, logger } = context;
  const locking: RowLocking = {
    clock,
    dialect,
    table,
    guard: settings.terms.guard,
    sessions,
    counterOf: (key) => (settings.fencing ? counterNameOf(namespace, key) : undefined),
    pause: (signal) => pause(clock, PAUSE * (0.5 + random.fraction() / 2), signal),
    onWaiting: (holder) => {
      context.emit({ type: 'waiting', holder });
    },
    onLost: (holder, cause) => {
      context.emit({ type: 'lost', holder, cause: driverErrorOf(cause) });
    },
    lend: (session, holder) =>
      new LentTransaction(session, settings.dataSource, holder, (error) => {
        logger.error(
          `A subscriber failed at the end of a transaction of lock provider "${context.name}": ${String(error)}`,
        );
      }),
    commitPatience,
  };
  return new RowAttempt(locking, request, rowNameOf(namespace, request.key));
}
