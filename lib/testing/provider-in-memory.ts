import { LockConfigError } from '../api/errors.js';
import type { LockInfo } from '../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  LockCapabilities,
  LockProvider,
  RecordStore,
} from '../api/lock-provider.js';
import { LockManager } from '../core/lock-manager.js';
import type { LockManagerOptions } from '../core/lock-manager-options.js';
import { describe } from '../core/plan/lock-plan.js';
import { MemoryBackend } from '../providers/memory/memory-backend.js';
import { MemoryLockProvider } from '../providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../providers/memory/memory-store.js';

/** What a provider can do. A stand-in refuses everything else. */
export interface Abilities extends LockCapabilities {
  /** The provider keeps records, so jobs can have ticks. */
  readonly records: boolean;
}

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

/**
 * Stand-ins for an application's providers, by name. The backends are created, as at startup, but never connected.
 *
 * @param standIn creates a provider that refuses what the other one refuses
 * @throws LockConfigError for mistakes that make startup fail, such as a missing composite member
 */
export function standInsFor(
  options: LockManagerOptions,
  standIn: (abilities: Abilities) => LockProvider,
): Readonly<Record<string, LockProvider>> {
  const manager = new LockManager(options);
  return Object.fromEntries(
    manager.providerNames.map((name) => {
      const { capabilities, records } = describe(manager.plan({ provider: name }));
      return [name, standIn({ ...capabilities, records })];
    }),
  );
}
