import { LockConfigError } from '../../api/errors.js';
import type { BackendContext, LockProvider } from '../../api/lock-provider.js';
import { shown } from '../../api/printable.js';
import { checkGiven, type OptionNames, refuseUnknown } from '../../core/toolkit/given-options.js';
import { MemoryBackend } from './memory-backend.js';
import { MemoryStore } from './memory-store.js';

export interface MemoryLockProviderOptions {
  /** Share this store with other providers and applications of the same process; all then compete for the same locks. Default: a new one for each application. */
  readonly store?: MemoryStore;
}

const OPTIONS: OptionNames<MemoryLockProviderOptions> = { store: true };

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
    checkGiven('MemoryLockProvider', options, 'new MemoryLockProvider()');
    refuseUnknown('MemoryLockProvider', options, OPTIONS);
    const { store } = options;
    if (store !== undefined && !(store instanceof MemoryStore)) {
      throw new LockConfigError(
        `MemoryLockProvider: "store" must be a MemoryStore, and is ${shown(store)}: pass new MemoryStore().`,
      );
    }
    this.#store = store;
  }

  createBackend(context: BackendContext): MemoryBackend {
    return new MemoryBackend(context, this.#store ?? new MemoryStore());
  }
}
