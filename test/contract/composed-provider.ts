import type {
  AcquireRequest,
  Answer,
  CompositeProvider,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  Member,
  ProviderContext,
  ProviderEvent,
  ReleaseManner,
  ReleaseOutcome,
  Renewal,
  RenewOutcome,
} from '../../lib/engine/lock-provider.js';
import type { LockInfo } from '../../lib/lock/lock-info.js';

/** A composite together with its members, as one provider: the kit starts one alone, while the engine starts all of an application. */
export class ComposedProvider implements LockProvider {
  readonly inspect?: (key: string) => Promise<LockInfo | null>;
  readonly forceRelease?: (key: string) => Promise<boolean>;
  readonly #listeners = new Map<LockProvider, (event: ProviderEvent) => void>();

  constructor(
    private readonly composite: CompositeProvider,
    readonly members: readonly LockProvider[],
  ) {
    composite.compose(new Map(members.map((member, index) => [composite.memberNames[index]!, this.#asMember(member)])));
    if (composite.inspect) this.inspect = composite.inspect.bind(composite);
    if (composite.forceRelease) this.forceRelease = composite.forceRelease.bind(composite);
  }

  get capabilities(): LockCapabilities {
    return this.composite.capabilities;
  }

  async start(context: ProviderContext): Promise<void> {
    const emitFor = (member: LockProvider) => (event: ProviderEvent) => this.#listeners.get(member)?.(event);
    // Whether a member that cannot be reached matters is for the composite to judge.
    await Promise.allSettled(this.members.map((member) => member.start({ ...context, emit: emitFor(member) })));
    await this.composite.start(context);
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    return this.composite.acquire(request);
  }

  renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    return this.composite.renew(renewals);
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    return this.composite.release(holder, manner);
  }

  async stop(): Promise<void> {
    await this.composite.stop();
    await Promise.all(this.members.map((member) => member.stop()));
  }

  #asMember(member: LockProvider): Member {
    return {
      capabilities: member.capabilities,
      acquire: (request) => member.acquire(request),
      renew: (renewals) => member.renew(renewals),
      release: (holder, manner) => member.release(holder, manner),
      ...(member.inspect && { inspect: member.inspect.bind(member) }),
      ...(member.forceRelease && { forceRelease: member.forceRelease.bind(member) }),
      observe: (listener) => this.#listeners.set(member, listener),
    };
  }
}
