import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { RedlockBackend } from './redlock-backend.js';
import { readRedlockOptions, type RedlockLockProviderOptions, type RedlockSettings } from './redlock-options.js';

/**
 * Locks granted by a majority vote of independent Redis servers: the Redlock algorithm, with fencing tokens.
 *
 * The provider guarantees mutual exclusion and growing fencing tokens even if any minority of the nodes is down,
 * frozen, or cut off. Such nodes don't delay locks, which are granted as soon as a majority has voted.
 *
 * The guarantee assumes that no node loses its data within a lease (AOF with `appendfsync always`, or
 * `delayedRestart`), that the nodes are independent, and that their wall clocks aren't stepped within a lease.
 * Otherwise, two processes may hold the same lock. The later one has the larger fencing token, as long as a majority of
 * the nodes still has its counters.
 *
 * The locks are not fair: processes retry after random pauses. Waiters in the same process are served in order.
 */
export class RedlockLockProvider implements LockProvider {
  readonly #settings: RedlockSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: RedlockLockProviderOptions) {
    this.#settings = readRedlockOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new RedlockBackend(context, this.#settings);
  }
}
