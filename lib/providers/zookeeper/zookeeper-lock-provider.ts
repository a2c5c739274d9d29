import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { SocketClient } from './socket-client.js';
import { ZooKeeperBackend } from './zookeeper-backend.js';
import { readOptions, type ZooKeeperLockProviderOptions, type ZooKeeperSettings } from './zookeeper-options.js';

/**
 * Locks on a ZooKeeper ensemble (3.4 or later) that follow the recipes of Apache Curator, so services in Java and
 * Python can use the same locks.
 *
 * It guarantees exclusive, shared, and limited locks, granted first come, first served across processes, as long as a
 * quorum keeps its data. A process that is cut off learns of the loss before the servers grant the lock to another
 * process. The fencing token is the zxid at which the holder entered the queue, so it survives everything except a loss
 * of the ensemble's data.
 *
 * Mutual exclusion can break if the ensemble loses its data, if `minSessionTimeout` is below two ticks, or if a process
 * pauses between its last check and a write, which no lock can prevent.
 */
export class ZooKeeperLockProvider implements LockProvider {
  readonly #settings: ZooKeeperSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: ZooKeeperLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    const settings = this.#settings;
    return new ZooKeeperBackend(context, settings, (listener) => new SocketClient(settings, context, listener));
  }
}
