import type {
  AcquireRequest,
  BackendContext,
  Grant,
  LockCapabilities,
  LockProvider,
  RecordStore,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
  StoredRecord,
} from '../../lib/api/lock-provider.js';
import { LockConfigError, type LockError, LockUnavailableError } from '../../lib/api/errors.js';
import { MemoryBackend } from '../../lib/providers/memory/memory-backend.js';
import { MemoryRecords } from '../../lib/providers/memory/memory-records.js';
import type { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { ProviderHarness } from '../../lib/provider-kit/index.js';

/** Makes a memory store look like a remote server, including every fault the kit injects. */
export class MemoryServer {
  constructor(
    readonly store: MemoryStore,
    private readonly Backend: new (...terms: DistantTerms) => DistantBackend = DistantBackend,
    private readonly fair = true,
  ) {}

  create(): DistantProvider {
    return new DistantProvider(this.store, this.Backend, this.fair);
  }

  harness(): ProviderHarness {
    return {
      capabilities: capabilitiesWith(this.fair),
      records: true,
      create: () => this.create(),
      faults: {
        revoke: (namespace, key) => Promise.resolve(void this.store.free(`${namespace}:${key}`)),
        cutOff: (provider) => Promise.resolve(cableOf(provider).cutOff()),
        silence: (provider) => Promise.resolve(cableOf(provider).silence()),
        refuse: (provider) => Promise.resolve(void (cableOf(provider).refuses = true)),
        restore: (provider) => Promise.resolve(cableOf(provider).restore()),
      },
      remainingLocks: () => Promise.resolve(this.store.size),
    };
  }
}

/** The network path to the store. */
export class Cable {
  readonly backends = new Set<DistantBackend>();
  /** The server responds, but denies every request. */
  refuses = false;
  #signal: AbortController | undefined = new AbortController();

  /** Aborts when the cable is cut, and is undefined until it's restored. */
  get signal(): AbortSignal | undefined {
    return this.#signal?.signal;
  }

  cutOff(): void {
    this.#signal?.abort();
    this.#signal = undefined;
    for (const backend of this.backends) backend.onCut();
  }

  /** Stops responses without closing the connection. */
  silence(): void {
    for (const backend of this.backends) backend.silentSince = backend.surrounding.clock.now();
  }

  restore(): void {
    this.refuses = false;
    for (const backend of this.backends) backend.silentSince = undefined;
    this.#signal = new AbortController();
    for (const backend of this.backends) backend.onRestored();
  }
}

/** Creates backends that share one cable. */
export class DistantProvider implements LockProvider {
  readonly cable = new Cable();

  constructor(
    private readonly store: MemoryStore,
    private readonly Backend: new (...terms: DistantTerms) => DistantBackend = DistantBackend,
    private readonly fair = true,
  ) {}

  createBackend(context: BackendContext): DistantBackend {
    return new this.Backend(context, this.store, this.cable, this.fair);
  }
}

type DistantTerms = [context: BackendContext, store: MemoryStore, cable: Cable, fair: boolean];

/** A memory backend behind a cable that can be cut. */
export class DistantBackend extends MemoryBackend {
  override readonly capabilities: LockCapabilities;
  readonly surrounding: BackendContext;
  readonly memory: MemoryStore;
  readonly cable: Cable;
  override readonly records: RecordStore;

  constructor(...[context, store, cable, fair]: DistantTerms) {
    super(context, store);
    this.capabilities = capabilitiesWith(fair);
    this.surrounding = context;
    this.memory = store;
    this.cable = cable;
    cable.backends.add(this);
    this.records = new DistantRecords(this, `${context.namespace}:`);
  }

  /** Since when the server hasn't responded, on the monotonic clock. */
  silentSince: number | undefined;

  unansweredFor(): number {
    return this.silentSince === undefined ? 0 : this.surrounding.clock.now() - this.silentSince;
  }

  get isConnected(): boolean {
    return this.cable.signal !== undefined;
  }

  refusal({ key }: Partial<AcquireRequest>): LockError {
    return new LockConfigError('No permission.', { key, provider: this.surrounding.name, refused: true });
  }

  onCut(): void {
    this.surrounding.emit({ type: 'unavailable', cause: unreachable() });
  }

  onRestored(): void {
    this.surrounding.emit({ type: 'recovered' });
  }

  override async connect(): Promise<void> {
    await super.connect();
    if (!this.isConnected) throw unreachable();
  }

  override async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const cable = this.cable.signal;
    if (!cable) throw unreachable();
    if (this.cable.refuses) throw this.refusal(request);
    if (request.wait <= 0) return super.acquire(request);
    const signal = AbortSignal.any([cable, request.signal]);
    const answer = await super.acquire({ ...copyOf(request), signal });
    if (answer === 'busy' && cable.aborted) throw unreachable();
    return answer;
  }

  override renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    return this.isConnected ? super.renew(request, lease) : Promise.resolve('unknown');
  }

  override release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    return this.isConnected ? super.release(request, options) : Promise.resolve('unknown');
  }
}

/** The store's records, accessed over the cable. */
class DistantRecords extends MemoryRecords {
  constructor(
    private readonly backend: DistantBackend,
    prefix: string,
  ) {
    super(backend.memory, prefix);
  }

  override async read(name: string): Promise<StoredRecord> {
    if (!this.backend.isConnected) throw unreachable();
    return super.read(name);
  }

  override async replace(name: string, expected: string | null, next: string): Promise<StoredRecord> {
    const { isConnected, cable } = this.backend;
    if (!isConnected) throw unreachable();
    if (cable.refuses) throw this.backend.refusal({});
    const answer = await super.replace(name, expected, next);
    // The write arrived, but the response is lost.
    if (!this.backend.isConnected) throw unreachable();
    return answer;
  }
}

function capabilitiesWith(fair: boolean): LockCapabilities {
  return {
    ...{ shared: true, limits: true, fencing: true, lease: 'per-lock', minHold: true, forceRelease: true, list: true },
    ...{ fair, ordered: true },
  };
}

function cableOf(provider: LockProvider): Cable {
  if ('cable' in provider && provider.cable instanceof Cable) return provider.cable;
  throw new Error('The provider belongs to another server.');
}

// The core's request defines its properties on the prototype, so a spread would lose them.
export function copyOf(request: AcquireRequest): Omit<AcquireRequest, 'signal'> {
  const { key, id, mode, limited, lease, minHold, otherKeysHeld, wait, since, callers } = request;
  return {
    ...{ key, id, mode, limited, lease, minHold, otherKeysHeld, wait, since, callers },
    waits: (instead) => {
      request.waits(instead);
    },
    lost: (cause) => {
      request.lost(cause);
    },
  };
}

function unreachable(): LockUnavailableError {
  return new LockUnavailableError('The memory server is unreachable.');
}
