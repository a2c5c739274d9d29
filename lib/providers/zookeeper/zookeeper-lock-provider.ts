import type {
  AcquireRequest,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  ProviderContext,
  Records,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { LockConfigError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import { Locks } from './locks.js';
import { nodeZooKeeperClients } from './node-zookeeper-client.js';
import { ZooKeeperRecords } from './records.js';
import { readOptions, type ZooKeeperLockProviderOptions, type ZooKeeperSettings } from './zookeeper-options.js';

/**
 * Locks on a ZooKeeper ensemble (3.5 or later), by the recipes of Apache Curator, so that services in Java and Python can take
 * the same locks.
 *
 * Promised: mutual exclusion and shared locks, first come, first served among processes and within each, as long as a quorum keeps
 * its data; whoever is cut off knows of its loss before the servers give the lock to another. The fencing token is the zxid at which
 * its holder entered the queue: it outlives everything but the data of the ensemble.
 *
 * What breaks it: an ensemble that loses its data, a `minSessionTimeout` below two ticks, and a pause between the last check and
 * a write, which no lock survives.
 */
export class ZooKeeperLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities;
  readonly records: Records = new ZooKeeperRecords(() => this.#started());
  readonly #settings: ZooKeeperSettings;
  #locks: Locks | undefined;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: ZooKeeperLockProviderOptions) {
    this.#settings = readOptions(options);
    this.capabilities = {
      shared: this.#settings.recipe === 'read-write',
      fair: true,
      fencing: true,
      lease: 'session',
      minHold: false,
      forceRelease: true,
      queue: 'engine',
    };
  }

  async start(context: ProviderContext): Promise<void> {
    if (this.#locks) {
      throw new LockConfigError(`Lock provider "${context.name}" was started before: make a new one.`, {
        provider: context.name,
      });
    }
    const clients = await nodeZooKeeperClients(this.#settings);
    this.#locks = new Locks(context, this.#settings, clients);
    await this.#locks.connect();
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#started().acquire(request);
  }

  renew(grant: Grant): Promise<RenewOutcome> {
    return this.#started().renew(grant);
  }

  release(holder: Holder): Promise<ReleaseOutcome> {
    return this.#started().release(holder);
  }

  inspect(key: string): Promise<LockInfo | null> {
    return this.#started().inspect(key);
  }

  forceRelease(key: string): Promise<boolean> {
    return this.#started().forceRelease(key);
  }

  check(): Promise<Finding[]> {
    return this.#started().check();
  }

  async stop(): Promise<void> {
    await this.#locks?.close();
  }

  #started(): Locks {
    if (this.#locks) return this.#locks;
    throw new LockConfigError('A ZooKeeperLockProvider was used before it was started.');
  }
}
