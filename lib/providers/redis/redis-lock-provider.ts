import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { readOptions, type RedisLockProviderOptions, type RedisSettings } from './client/redis-options.js';
import { RedisBackend } from './redis-backend.js';

/**
 * Locks on a single Redis server (6.2 or later), on the master that Sentinel reports, or on a Redis Cluster.
 *
 * The provider guarantees mutual exclusion, first-come-first-served order across all processes, and a fencing token
 * with every grant. It supports shared locks. A handoff to another process takes one round trip; between consecutive
 * waiters in one process, it takes none. Waiters don't poll: a process with waiters sends one command per second.
 *
 * The guarantees assume that the server keeps its data (`noeviction`, and AOF if it may restart), that any replica
 * promoted while a lock is held has that lock (set `waitReplicas`, because replication is asynchronous), and that the
 * server's wall clock isn't stepped. Otherwise, two processes may hold the same lock, but the later one has the larger
 * fencing token.
 */
export class RedisLockProvider implements LockProvider {
  readonly #settings: RedisSettings;

  /** Checks the options without connecting. @throws LockConfigError for invalid options */
  constructor(options: RedisLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new RedisBackend(context, this.#settings);
  }
}
