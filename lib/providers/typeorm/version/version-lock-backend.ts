import type { BackendContext, CasStore, Holder, LockCapabilities } from '../../../api/lock-provider.js';
import type { LockInfo } from '../../../api/lock-info.js';
import { SqlCasStore } from '../cas-store.js';
import { connectToServer } from '../database.js';
import { leaseNameOf } from '../lock-name.js';
import type { DatabaseSettings } from '../options.js';
import { purge, type PurgeOptions, readUnusedFor } from '../purge.js';
import { SqlBackend } from '../sql-backend.js';
import { LeaseTable } from './lease-table.js';
import { Renewals } from './renewals.js';
import { connectToSqlite } from './sqlite.js';
import { type LeaseDatabase, VersionAttempt } from './version-attempt.js';

/** The version locks of one application. */
export class VersionLockBackend extends SqlBackend<LeaseDatabase> {
  readonly capabilities: LockCapabilities = {
    shared: false,
    fair: false,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    queue: 'local',
  };
  /** On a server; not in SQLite. */
  readonly casStore?: CasStore;

  constructor(
    context: BackendContext,
    private readonly settings: DatabaseSettings,
  ) {
    super(context);
    const { database } = settings;
    if (database === 'sqlite') return;
    this.casStore = new SqlCasStore({ ...settings, database }, context, () => this.database());
  }

  inspect(key: string): Promise<LockInfo | null> {
    const inspect = async ({ leases }: LeaseDatabase): Promise<LockInfo | null> => {
      const lease = await leases.look(this.#nameOf(key));
      if (!lease || lease.remaining <= 0) return null;
      const { holder, remaining, version } = lease;
      return {
        ...{ key, mode: 'exclusive', waiters: null, expiresIn: remaining, fencingToken: version },
        ...(holder === undefined ? { state: 'retained', holders: 0 } : { state: 'held', holders: 1 }),
      };
    };
    return this.operate(`Lock "${key}"`, inspect, key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.operate(`Lock "${key}"`, ({ leases }) => leases.forceRelease(this.#nameOf(key)), key);
  }

  /**
   * Deletes the rows of keys that were not held or retained for `unusedFor` (1 s to 24.8 days), and never a row that is, and
   * the rows of row locks in the same table that were created so long ago and that nobody holds. Answers how many. The next token of a
   * deleted row begins at the time of the server, which is past its last token, unless the clock was set back since.
   */
  async purge(options: PurgeOptions): Promise<number> {
    const unusedFor = readUnusedFor(options);
    return this.operate('purge()', (database) => database.purge(unusedFor));
  }

  protected async open(): Promise<LeaseDatabase> {
    const { context } = this;
    const { database, ...settings } = this.settings;
    if (database === 'sqlite') return connectToSqlite(settings, context);
    const needs = { forStatements: settings.maxConnections, table: true };
    const server = await connectToServer({ ...settings, database }, context, needs);
    const leases = new LeaseTable(database, settings.table, server.run);
    return {
      ...server,
      leases,
      renewals: new Renewals(context.clock, leases),
      purge: (unusedFor) => purge(server, unusedFor),
    };
  }

  protected attempt(database: LeaseDatabase, { key, holder }: Holder): VersionAttempt {
    return new VersionAttempt(this.context, database, this.#nameOf(key), holder);
  }

  #nameOf(key: string): string {
    return leaseNameOf(this.context.namespace, key);
  }
}
