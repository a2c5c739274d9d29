import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { MemcachedBackend } from './memcached-backend.js';
import { type MemcachedLockProviderOptions, type MemcachedSettings, readOptions } from './memcached-options.js';

/**
 * Locks on one memcached server (1.6 or later), to avoid duplicate work. Don't use it to protect data.
 *
 * Two callers never hold the same lock as long as the server keeps its items. But memcached evicts items when its
 * memory is full, and a restart or a `flush_all` deletes them all. The next caller then gets the lock while the holder
 * keeps working until its next renewal, and there is no fencing token to tell the two apart. If an overlap would cause
 * damage, use another provider.
 *
 * Waiters in one process are served in order. Across processes, the first to poll a free lock gets it. If a holder
 * crashes, its lock stays busy until the lease ends, plus up to three seconds, because the server counts whole seconds.
 */
export class MemcachedLockProvider implements LockProvider {
  readonly #settings: MemcachedSettings;

  /** @throws LockConfigError for invalid options */
  constructor(options: MemcachedLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new MemcachedBackend(context, this.#settings);
  }
}
