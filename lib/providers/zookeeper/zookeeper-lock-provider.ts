import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { SocketClient } from './socket-client.js';
import { ZooKeeperBackend } from './zookeeper-backend.js';
import { readOptions, type ZooKeeperLockProviderOptions, type ZooKeeperSettings } from './zookeeper-options.js';

/**
 * Locks on a ZooKeeper ensemble (3.4 or later), by the recipes of Apache Curator, so that services in Java and Python can take
 * the same locks.
 *
 * Promised: exclusive, shared and limited locks, first come, first served among processes and within each, as long as a quorum keeps
 * its data. A process that is cut off knows of its loss before the servers give the lock to another. The fencing token is the zxid at
 * which its holder entered the queue: it outlives everything but the data of the ensemble.
 *
 * It breaks with an ensemble that loses its data, with a `minSessionTimeout` below two ticks, and with a pause between the last check and
 * a write, which no lock survives.
 */
export class ZooKeeperLockProvider implements LockProvider {
  readonly #settings: ZooKeeperSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: ZooKeeperLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    const settings = this.#settings;
    return new ZooKeeperBackend(context, settings, (listener) => new SocketClient(settings, context, listener));
  }
}
