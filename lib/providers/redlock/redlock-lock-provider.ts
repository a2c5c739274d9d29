import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { RedlockBackend } from './redlock-backend.js';
import { readRedlockOptions, type RedlockLockProviderOptions, type RedlockSettings } from './redlock-options.js';

/**
 * Locks by the votes of a majority of independent Redis servers: the Redlock algorithm, with a fencing token.
 *
 * Promised: mutual exclusion and growing fencing tokens while any minority of the nodes is down, frozen or cut off. A node
 * that does not answer delays no lock: it is decided as soon as a majority has answered.
 *
 * This assumes that no node loses its data within a lease (AOF with `appendfsync always`, or `delayedRestart`), that nodes are
 * independent, and that their wall clocks are not stepped within a lease. Otherwise two holders are possible, and the
 * later one has the larger fencing token, as long as a majority of the nodes still has its counters.
 *
 * Not fair: waiters of different processes ask again after random pauses. Those of one process are served in their order.
 */
export class RedlockLockProvider implements LockProvider {
  readonly #settings: RedlockSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: RedlockLockProviderOptions) {
    this.#settings = readRedlockOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new RedlockBackend(context, this.#settings);
  }
}
