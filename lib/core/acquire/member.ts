import type { LossReason } from '../../api/errors.js';
import { LockUnavailableError } from '../../api/errors.js';
import type {
  AcquireRequest,
  BackendEvent,
  Grant,
  Member,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { GrantHolder, HeldGrant } from '../hold/held-grant.js';
import type { ReleaseTerms } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';
import type { AcquireTerms } from './acquire-terms.js';
import { Caller } from './caller.js';
import type { KeyQueue } from './key-queue.js';
import type { KeyQueues } from './key-queues.js';

/**
 * A provider as one that is built on it sees it: its requests are callers in the queues of this one, placed by their age.
 *
 * Such a caller repeats its request by itself, and gets all tokens of its grant: its own core hands them to callers.
 */
export function memberOf(provider: ProviderCore, queues: KeyQueues): Member {
  const { backend, capabilities } = provider;
  const listeners: ((event: BackendEvent) => void)[] = [];
  const emit = (event: BackendEvent): void => {
    for (const listener of listeners) listener(event);
  };
  /** Those that wait or hold, or got an error and were not released yet, by the id of their request. */
  const callers = new Map<string, MemberCaller>();
  return {
    capabilities,
    acquire(request) {
      let caller = callers.get(request.holder);
      if (!caller || caller.hasFailed) {
        caller = new MemberCaller(request, queues.of(request.key, request.depth ?? 0), provider, callers, emit);
        callers.set(request.holder, caller);
      }
      return caller.ask(request);
    },
    renew: (grant, lease) => callers.get(grant.holder)?.renew(lease) ?? Promise.resolve('lost'),
    release(lock, { keepFor, failed }) {
      const now = provider.clock.now();
      const terms = { keepUntil: keepFor === 0 ? 0 : now + keepFor, failed };
      // What nobody asked for is sent too: the answer shows that the backend is there.
      return callers.get(lock.holder)?.release(terms) ?? provider.releases.send(lock, terms, now);
    },
    ...(backend.inspect && { inspect: backend.inspect.bind(backend) }),
    ...(backend.forceRelease && {
      forceRelease: (key: string) => queues.forceRelease(key),
    }),
    ...(backend.casStore && { casStore: backend.casStore }),
    observe(listener) {
      listeners.push(listener);
      // What happens to single requests is reported by these.
      provider.observe((event) => {
        if (event.type !== 'lost' && event.type !== 'waiting') listener(event);
      });
    },
  };
}

/** A request of a provider that is built on this one, as a caller. */
class MemberCaller extends Caller implements GrantHolder {
  readonly isAlone = true;
  readonly endsAt = Infinity;
  /** It got an error, so it is released, or asks again as another caller. */
  hasFailed = false;
  #request: AcquireRequest;
  #held: HeldGrant | undefined;
  /** To the ask in flight. */
  #answer: { resolve(answer: Grant | 'busy'): void; reject(error: unknown): void } | undefined;

  constructor(
    request: AcquireRequest,
    private readonly keyQueue: KeyQueue,
    provider: ProviderCore,
    /** It is among these until it is busy, has left or is released. */
    private readonly open: Map<string, MemberCaller>,
    private readonly emit: (event: BackendEvent) => void,
  ) {
    super(termsOf(request, provider), keyQueue, provider);
    this.#request = request;
  }

  ask(request: AcquireRequest): Promise<Grant | 'busy'> {
    this.#request = request;
    return new Promise((resolve, reject) => {
      this.#answer = { resolve, reject };
      if (this.#held) {
        this.#grant(this.#held);
        return;
      }
      const { wait } = request;
      this.deadline = wait > 0 ? Infinity : this.provider.clock.now();
      if (wait > 0) request.signal.addEventListener('abort', this.#onAbort, { once: true });
      if (!this.isQueued) this.keyQueue.add(this);
      else if (!this.keyQueue.again(this) && wait <= 0) this.keyQueue.onTime(this);
      if (wait > 0 && request.signal.aborted) this.#onAbort();
    });
  }

  async renew(lease: number): Promise<RenewOutcome> {
    const held = this.#held;
    if (!held?.isValid()) return 'lost';
    const { backend, suspension } = this.provider;
    held.changeLease(lease);
    const suspensions = suspension.observe();
    const number = held.beginRenewal();
    const outcome = await backend.renew(held.grant, held.lease);
    if (outcome === 'lost') held.lose('revoked');
    else if (outcome !== 'unknown') held.confirm(number, outcome.validUntil, suspensions);
    return outcome;
  }

  release(terms: ReleaseTerms): Promise<ReleaseOutcome> {
    const held = this.#held;
    this.#close();
    this.#settle('busy');
    if (held) return held.isValid() ? held.leave(this, terms) : Promise.resolve('lost');
    return this.isQueued ? this.keyQueue.withdraw(this) : Promise.resolve('lost');
  }

  enter(grant: HeldGrant): void {
    this.#held = grant;
    grant.holders.add(this);
    this.#grant(grant);
  }

  lose(_reason: LossReason, cause: unknown): void {
    this.#close();
    this.emit({ type: 'lost', holder: this.#request.holder, cause });
  }

  refuseBusy(): void {
    this.#close();
    this.#settle('busy');
  }

  refuseUnavailable(cause: unknown): void {
    const { key } = this.terms.subject;
    this.refuse(
      cause ?? new LockUnavailableError(`The backend did not answer when it was asked for "${key}".`, { key }),
    );
  }

  refuse(error: unknown): void {
    this.hasFailed = true;
    this.unanswered(error);
  }

  unanswered(error: unknown): void {
    this.#request.signal.removeEventListener('abort', this.#onAbort);
    this.#answer?.reject(error);
    this.#answer = undefined;
  }

  waits(): void {
    this.emit({ type: 'waiting', holder: this.#request.holder });
  }

  readonly #onAbort = (): void => {
    if (!this.#answer || this.#held) return;
    this.#close();
    if (this.isQueued) void this.keyQueue.withdraw(this);
    this.#settle('busy');
  };

  #grant({ validUntil, lease, followers, token }: HeldGrant): void {
    const { key, holder, mode } = this.#request;
    this.#settle({ key, holder, mode, fencingToken: token, validUntil, lease, followers });
  }

  #close(): void {
    this.open.delete(this.#request.holder);
  }

  #settle(answer: Grant | 'busy'): void {
    this.#request.signal.removeEventListener('abort', this.#onAbort);
    this.#answer?.resolve(answer);
    this.#answer = undefined;
  }
}

function termsOf(request: AcquireRequest, { clock, name }: ProviderCore): AcquireTerms {
  const { key, mode, limited, lease, renew, minHold, depth = 0, wait, age, callers } = request;
  const now = clock.now();
  return {
    subject: { key, provider: name, mode, method: null, template: null },
    lease: { lease, renew, minHold },
    limited,
    startedAt: now,
    since: now - age,
    deadline: wait > 0 ? Infinity : now,
    signal: undefined,
    depth,
    callers,
    around: [],
  };
}
