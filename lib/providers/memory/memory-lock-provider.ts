import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { option, type OptionTable, read } from '../../core/toolkit/options.js';
import { MemoryBackend } from './memory-backend.js';
import { MemoryStore } from './memory-store.js';

export interface MemoryLockProviderOptions {
  /** Share this store with other providers and applications of the same process; all then compete for the same locks. Default: a new one for each application. */
  readonly store?: MemoryStore;
}

const OPTIONS = {
  store: option('a MemoryStore: pass new MemoryStore()', (given) =>
    given instanceof MemoryStore ? given : undefined,
  ).written(),
} satisfies OptionTable<MemoryLockProviderOptions>;

/**
 * Locks in the memory of this process: the default, with nothing to install.
 *
 * It guarantees mutual exclusion, FIFO order and growing fencing tokens among the tasks of one process. It protects
 * nothing between processes, and warns when it finds itself in a worker of a cluster. A holder whose event loop is
 * blocked for longer than its lease loses the lock, as with any other provider.
 */
export class MemoryLockProvider implements LockProvider {
  readonly #store: MemoryStore | undefined;

  /** @throws LockConfigError for a store of another kind */
  constructor(options: MemoryLockProviderOptions = {}) {
    const owner = { name: 'MemoryLockProvider', example: 'new MemoryLockProvider()' };
    this.#store = read(owner, options, OPTIONS).store;
  }

  createBackend(context: BackendContext): LockBackend {
    return new MemoryBackend(context, this.#store ?? new MemoryStore());
  }
}
