import type { Clock } from '../../../api/clock.js';
import type { Holder, LockCapabilities, ProviderContext, Records } from '../../../api/lock-provider.js';
import type { LockInfo } from '../../../api/lock-info.js';
import { connectToServer } from '../database.js';
import { leaseNameOf } from '../lock-name.js';
import type { DatabaseSettings } from '../options.js';
import { purge, type PurgeOptions, readUnusedFor } from '../purge.js';
import { type SqlLocks, SqlLockProvider } from '../sql-lock-provider.js';
import type { LeaseDatabase } from './lease-database.js';
import { LeaseTable } from './lease-table.js';
import { Renewals } from './renewals.js';
import { connectToSqlite } from './sqlite.js';
import { VersionAttempt } from './version-attempt.js';
import { readVersionLockOptions, type TypeOrmVersionLockProviderOptions } from './version-lock-options.js';

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
export class TypeOrmVersionLockProvider extends SqlLockProvider<VersionLocks> {
  readonly capabilities: LockCapabilities = {
    ...{ shared: false, fair: false, fencing: true, lease: 'per-lock' },
    ...{ minHold: true, forceRelease: true, queue: 'engine' },
  };
  /** On a server; not in SQLite. */
  readonly records?: Records;
  readonly #settings: DatabaseSettings;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: TypeOrmVersionLockProviderOptions) {
    super();
    this.#settings = readVersionLockOptions(options);
    if (this.#settings.database !== 'sqlite') this.records = this.serverRecords;
  }

  inspect(key: string): Promise<LockInfo | null> {
    return this.operate(`Lock "${key}"`, (locks) => locks.inspect(key), key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.operate(`Lock "${key}"`, ({ leases, nameOf }) => leases.forceRelease(nameOf(key)), key);
  }

  /**
   * Deletes the rows of keys that nobody has held or parked for `unusedFor` (1 s to 24.8 days), never one that is held or parked,
   * and those of row locks in the same table that were made so long ago and that nobody holds. Answers how many. The next token of a
   * deleted row begins at the time of the server, which is past its last one, unless the clock was set back since.
   */
  purge(options: PurgeOptions): Promise<number> {
    const unusedFor = readUnusedFor(options);
    return this.operate('purge()', ({ database }) => database.purge(unusedFor));
  }

  protected async connect(context: ProviderContext): Promise<VersionLocks> {
    return new VersionLocks(context, await connectTo(this.#settings, context));
  }
}

/** Leases in a database that is connected. */
export class VersionLocks implements SqlLocks {
  readonly clock: Clock;
  readonly leases: LeaseTable;
  readonly renewals: Renewals;
  readonly #inBackground = new Set<Promise<unknown>>();

  constructor(
    readonly context: ProviderContext,
    readonly database: LeaseDatabase,
  ) {
    this.clock = context.clock;
    this.leases = database.leases;
    this.renewals = new Renewals(context.clock, database.leases);
  }

  attempt({ key, holder }: Holder): VersionAttempt {
    return new VersionAttempt(this, this.nameOf(key), holder);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const lease = await this.leases.look(this.nameOf(key));
    if (!lease || lease.remaining <= 0) return null;
    const { holder, remaining, version } = lease;
    return {
      ...{ key, mode: 'exclusive', waiters: null, expiresIn: remaining, fencingToken: version },
      ...(holder === undefined ? { state: 'parked', holders: 0 } : { state: 'held', holders: 1 }),
    };
  }

  readonly nameOf = (key: string): string => leaseNameOf(this.context.namespace, key);

  /** `work` goes on, and no caller awaits it. */
  inBackground(work: Promise<unknown>): void {
    this.#inBackground.add(work);
    void work.finally(() => this.#inBackground.delete(work));
  }

  background(): Promise<unknown> {
    return Promise.all(this.#inBackground);
  }
}

async function connectTo(
  { database, ...settings }: DatabaseSettings,
  context: ProviderContext,
): Promise<LeaseDatabase> {
  if (database === 'sqlite') return connectToSqlite(settings, context);
  const needs = { forStatements: settings.maxConnections, table: true };
  const server = await connectToServer({ ...settings, database }, context, needs);
  return {
    ...server,
    leases: new LeaseTable(database, settings.table, server.statements.run),
    purge: (unusedFor) => purge(server, unusedFor),
  };
}
