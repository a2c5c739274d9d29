import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { option, type OptionTable, read } from '../../core/toolkit/options.js';
import { MemoryBackend } from './memory-backend.js';
import { MemoryStore } from './memory-store.js';

export interface MemoryLockProviderOptions {
  /**
   * A store to share with other providers or applications in this process, which then compete for the same locks.
   * Default: a separate store for each application.
   */
  readonly store?: MemoryStore;
}

const OPTIONS = {
  store: option('a MemoryStore: pass new MemoryStore()', (given) =>
    given instanceof MemoryStore ? given : undefined,
  ).written(),
} satisfies OptionTable<MemoryLockProviderOptions>;

/**
 * Locks in this process's memory. This is the default provider and needs no installation.
 *
 * It guarantees mutual exclusion, FIFO order, and increasing fencing tokens within one process. It doesn't protect
 * against other processes, and logs a warning in a cluster worker. As with any provider, a holder that blocks its event
 * loop for longer than the lease loses the lock.
 */
export class MemoryLockProvider implements LockProvider {
  readonly #store: MemoryStore | undefined;

  /** @throws LockConfigError if `store` is not a `MemoryStore` */
  constructor(options: MemoryLockProviderOptions = {}) {
    const owner = { name: 'MemoryLockProvider', example: 'new MemoryLockProvider()' };
    this.#store = read(owner, options, OPTIONS).store;
  }

  createBackend(context: BackendContext): LockBackend {
    return new MemoryBackend(context, this.#store ?? new MemoryStore());
  }
}
