import type { AcquireRequest, BackendContext, Holding, LockCapabilities } from '../../../api/lock-provider.js';
import type { PurgeOptions } from '../../../api/purge-options.js';
import { LockConfigError } from '../../../api/errors.js';
import type { LockInfo } from '../../../api/lock-info.js';
import { SeenHolders } from '../../shared/seen-holders.js';
import { entryNameOf, entryNamesOf, leasesAndInstancesOf, namespaceOfLease, purgeNameOf } from '../table/lock-name.js';
import { entriesOf } from '../table/lock-table.js';
import { SqlBackend } from '../sql-backend.js';
import { infoOf, leaseOf } from './lease.js';
import { LeaseTable } from './lease-table.js';
import { LimitedLeases } from './limited-leases.js';
import { type LeaseDatabase, VersionRequest } from './version-request.js';

// How long an unused key's row is kept.
const UNUSED: PurgeOptions = { unusedFor: '7d' };
// Each process registers hourly and then purges the table unless another process has started a purge within this time,
// in ms.
const PURGED_ONCE_IN = 3_000_000;

/** One application's version locks. */
export class VersionLockBackend extends SqlBackend<LeaseDatabase> {
  readonly capabilities: LockCapabilities = {
    shared: false,
    limits: true,
    fair: false,
    fencing: true,
    lease: 'per-lock',
    minHold: true,
    forceRelease: true,
    list: true,
  };
  readonly #holders = new SeenHolders(this.context.instance, async (id) => {
    const { leases } = await this.database();
    const names = await leases.namesOfInstances(new Set([id]));
    return names.get(id) ?? id;
  });
  #hasWarned = false;

  /** The first reads of all keys share one statement. */
  chains(): boolean {
    return true;
  }

  heldBy(request: AcquireRequest): Holding | null {
    return this.#holders.heldBy(request);
  }

  inspect(key: string): Promise<LockInfo | null> {
    const inspect = async ({ leases }: LeaseDatabase): Promise<LockInfo | null> => {
      const lease = await leases.read(entryNameOf(this.context.namespace, 'lease', key));
      const info = lease && infoOf(key, lease);
      const [named = null] = info ? await this.#named(leases, [info]) : [];
      return named;
    };
    return this.operate(`Lock "${key}"`, inspect, key);
  }

  forceRelease(key: string): Promise<boolean> {
    const name = entryNameOf(this.context.namespace, 'lease', key);
    return this.operate(`Lock "${key}"`, ({ leases }) => leases.forceRelease(name), key);
  }

  async *list({ prefix }: { readonly prefix: string }): AsyncGenerator<LockInfo, void> {
    const readFrom = (from: string) => this.operate('list()', ({ leases }) => leases.page(from));
    for await (const entries of entriesOf(this.context.namespace, 'lease', prefix, readFrom)) {
      const wanted = entries.filter(({ key }) => key.startsWith(prefix));
      const locks = wanted.flatMap(({ key, row }) => infoOf(key, leaseOf(row)) ?? []);
      yield* await this.operate('list()', ({ leases }) => this.#named(leases, locks));
    }
  }

  async namespaces(): Promise<readonly string[]> {
    const found: string[] = [];
    for (let from = ''; ;) {
      const start = from;
      const page = await this.operate('namespaces()', ({ leases }) => leases.page(start));
      const last = page.at(-1);
      if (!last) return found;
      const held = page.filter((row) => infoOf('', leaseOf(row)));
      const [namespace] = held.flatMap(({ name }) => namespaceOfLease(name.toString()) ?? []);
      if (namespace !== undefined) found.push(namespace);
      // Skip that namespace's other leases. The exclamation mark sorts before every character in a name.
      from = namespace === undefined ? `${last.name.toString()}!` : entryNamesOf(namespace, 'lease')[1];
    }
  }

  async register(): Promise<void> {
    const { name, logger } = this.context;
    await this.operate('register()', ({ leases }) => leases.registerInstance());
    try {
      await this.operate('purge()', ({ leases }) => this.#purgeInTurn(leases));
    } catch (error) {
      if (this.#hasWarned || !(error instanceof LockConfigError)) return;
      this.#hasWarned = true;
      logger.warn(`Lock provider "${name}" cannot delete unused rows. Grant DELETE on its table. ${error.message}`);
    }
  }

  /**
   * Deletes the rows of keys that have been neither held nor retained for `unusedFor` (1 s to 24.8 days). Also
   * deletes unlocked row-lock rows in the same table that were created at least that long ago. Returns the number of
   * deleted rows. A deleted row's tokens restart at the server's time, which is higher than its last token unless
   * the clock was set back.
   */
  purge(options: PurgeOptions): Promise<number> {
    return this.operate('purge()', ({ leases }) => leases.purge(options));
  }

  /**
   * Purges unless another process is purging. The purge lease isn't released; it expires before the next hourly purge.
   */
  async #purgeInTurn(leases: LeaseTable): Promise<void> {
    const { namespace, instance } = this.context;
    const name = purgeNameOf(namespace);
    await leases.createRow(name);
    const seen = await leases.read(name);
    if (!seen || seen.holds.length > 0) return;
    const isOurs = (await leases.claim({ name, seen, holder: instance.id }, PURGED_ONCE_IN, 1)) !== undefined;
    if (isOurs) await leases.purge(UNUSED, leasesAndInstancesOf(namespace));
  }

  protected open(): Promise<LeaseDatabase> {
    const { settings, context } = this;
    const needs = { forStatements: settings.maxConnections, table: true };
    return this.connectToServer(needs, (database) => {
      const leases = new LeaseTable(database.table.unquoted, settings.family, database.run, context, settings);
      return { ...database, leases, limited: new LimitedLeases(leases) };
    });
  }

  protected requestFor(database: LeaseDatabase, request: AcquireRequest, context: BackendContext): VersionRequest {
    return new VersionRequest(context, database, request, this.#holders);
  }

  /** Replaces instance ids with names. */
  async #named(leases: LeaseTable, locks: readonly LockInfo[]): Promise<LockInfo[]> {
    const ids = new Set(locks.flatMap(({ instances }) => instances));
    const names = await leases.namesOfInstances(ids);
    return locks.map((lock) => ({
      ...lock,
      instances: [...new Set(lock.instances.map((id) => names.get(id) ?? id))],
    }));
  }
}
