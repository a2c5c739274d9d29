import type {
  AcquireRequest,
  Answer,
  CompositeProvider,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  ProviderContext,
  ProviderEvent,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../lib/api/lock-provider.js';
import { LocalQueue } from '../../lib/core/acquire/local-queue.js';
import { LockError } from '../../lib/api/errors.js';
import type { LockInfo } from '../../lib/api/lock-info.js';

/** A composite and its members as one provider, as the kit wants it: what the engine does with those of an application. */
export class HostedComposite<M extends Record<string, LockProvider>> implements LockProvider {
  readonly #starts: ((context: ProviderContext) => Promise<void>)[];

  constructor(
    readonly composite: CompositeProvider,
    readonly members: M,
  ) {
    const entries = Object.entries(members).map(([name, provider]) => {
      const backend = provider.capabilities.queue === 'engine' ? new LocalQueue(provider) : provider;
      const listeners: ((event: ProviderEvent) => void)[] = [];
      const emit = (event: ProviderEvent) => {
        for (const listener of listeners) listener(event);
      };
      const start = (context: ProviderContext) => backend.start({ ...context, name, emit });
      const member = {
        capabilities: provider.capabilities,
        acquire: backend.acquire.bind(backend),
        renew: backend.renew.bind(backend),
        release: backend.release.bind(backend),
        ...(provider.inspect && { inspect: provider.inspect.bind(provider) }),
        ...(provider.forceRelease && { forceRelease: provider.forceRelease.bind(provider) }),
        ...(provider.records && { records: provider.records }),
        observe: (listener: (event: ProviderEvent) => void) => void listeners.push(listener),
      };
      return { name, start, member };
    });
    composite.compose(new Map(entries.map(({ name, member }) => [name, member])));
    this.#starts = entries.map(({ start }) => start);
  }

  get capabilities(): LockCapabilities {
    return this.composite.capabilities;
  }

  async start(context: ProviderContext): Promise<void> {
    for (const result of await Promise.allSettled(this.#starts.map((start) => start(context)))) {
      if (result.status === 'rejected' && !LockError.is(result.reason)) throw result.reason;
    }
    await this.composite.start(context);
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    return this.composite.acquire(request);
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.composite.renew(grant, lease);
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    return this.composite.release(holder, manner);
  }

  async inspect(key: string): Promise<LockInfo | null> {
    return (await this.composite.inspect?.(key)) ?? null;
  }

  async forceRelease(key: string): Promise<boolean> {
    return (await this.composite.forceRelease?.(key)) ?? false;
  }

  async check(): Promise<readonly Finding[]> {
    return (await this.composite.check?.()) ?? [];
  }

  async stop(): Promise<void> {
    await this.composite.stop();
    await Promise.all(Object.values(this.members).map((member) => member.stop()));
  }
}
