import type { BackendContext, LockBackend, LockProvider } from '../../api/lock-provider.js';
import { MemcachedBackend } from './memcached-backend.js';
import { type MemcachedLockProviderOptions, type MemcachedSettings, readOptions } from './memcached-options.js';

/**
 * Locks on one memcached server (1.6 or later), to avoid doing work twice. They protect nothing.
 *
 * Two callers never hold a lock as long as the server keeps its items. It need not: it evicts items when its memory is full, and a
 * restart or a `flush_all` empties it. The next caller then gets the lock, while the holder learns of the loss at its next renewal, and
 * no fencing token distinguishes the two. Where damage must be prevented, use another provider.
 *
 * Waiters of one process are served in order; among processes the first that asks gets the lock. A holder that crashes keeps others out
 * for its lease and up to three seconds more, because the server counts in whole seconds.
 */
export class MemcachedLockProvider implements LockProvider {
  readonly #settings: MemcachedSettings;

  /** @throws LockConfigError for options that cannot work */
  constructor(options: MemcachedLockProviderOptions) {
    this.#settings = readOptions(options);
  }

  createBackend(context: BackendContext): LockBackend {
    return new MemcachedBackend(context, this.#settings);
  }
}
