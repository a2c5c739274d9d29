import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { readOptions, type RedisLockProviderOptions, type RedisSettings } from './client/redis-options.js';
import { RedisBackend } from './redis-backend.js';

/**
 * Locks on one Redis server (6.2 or later), on the master that Sentinel names, or on the masters of a Redis Cluster.
 *
 * It guarantees mutual exclusion, shared locks, first come first served over all processes, a fencing token with every
 * grant, and a handoff that takes one round trip, or none between waiters of one process that are queued behind each other.
 * Waiting costs no polling: a process with waiters sends one command a second.
 *
 * It assumes that the server keeps its data (`noeviction`, and AOF if it may restart), that a replica which is promoted while
 * a lock is held has that lock (`waitReplicas`, because replication is asynchronous), and that the server's wall clock is not
 * stepped. Otherwise two holders are possible, and the later one has the larger fencing token.
 */
export class RedisLockProvider implements LockProvider {
  readonly #settings: RedisSettings;

  /** @throws LockConfigError for options that cannot work. Connects to nothing. */
  constructor(options: RedisLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new RedisBackend(context, this.#settings);
  }
}
