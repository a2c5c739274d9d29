import { LockConfigError } from '../api/errors.js';
import type { LockInfo } from '../api/lock-info.js';
import type { AcquireRequest, BackendContext, Grant, RecordStore } from '../api/lock-provider.js';
import { MemoryBackend } from '../providers/memory/memory-backend.js';
import { MemoryLockProvider } from '../providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../providers/memory/memory-store.js';
import type { Abilities } from './capabilities.js';

/** In-memory locks that stand in for another provider and refuse what it cannot do. */
export class ProviderInMemory extends MemoryLockProvider {
  readonly #store = new MemoryStore();

  constructor(private readonly abilities: Abilities) {
    super();
  }

  override createBackend(context: BackendContext): MemoryBackend {
    return new BackendInMemory(context, this.#store, this.abilities);
  }
}

/** In-memory locks with another backend's capabilities. */
export class BackendInMemory extends MemoryBackend {
  constructor(
    context: BackendContext,
    store: MemoryStore,
    override readonly capabilities: Abilities,
    records?: RecordStore,
  ) {
    super(context, store);
    Object.assign(this, { records: capabilities.records ? (records ?? this.records) : undefined });
  }

  override async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const grant = await super.acquire(request);
    return grant === 'busy' || this.capabilities.fencing ? grant : { ...grant, fencingToken: null };
  }

  override list(query: { readonly prefix: string }): AsyncIterable<LockInfo> {
    if (this.capabilities.list) return super.list(query);
    throw new LockConfigError(
      'These in-memory locks replace a lock provider that does not support list(). Test without list(), or with another provider.',
    );
  }
}
