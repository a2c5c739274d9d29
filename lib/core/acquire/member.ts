import type { LossReason } from '../../api/errors.js';
import { type LockError, LockUnavailableError } from '../../api/errors.js';
import type { AcquireRequest, Grant, Member, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import type { GrantHolder, HeldGrant } from '../hold/held-grant.js';
import type { ReleaseIntent } from '../hold/releases.js';
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
  return {
    capabilities,
    commandTimeout: backend.commandTimeout,
    acquire(request) {
      let caller = callerOf(request);
      if (caller === undefined || caller.hasFailed) {
        caller = new MemberCaller(request, queues.of(request.key, request.otherKeysHeld), provider);
        request.state = caller;
      }
      return caller.ask();
    },
    renew: (request, lease) => callerOf(request)?.renew(lease) ?? Promise.resolve('lost'),
    release(request, { keepFor, failed }) {
      const now = provider.clock.now();
      const intent = { keepUntil: keepFor === 0 ? 0 : now + keepFor, failed };
      // What nobody asked for is released too: the answer shows that the backend is there.
      return callerOf(request)?.release(intent) ?? provider.releases.send(request, intent, 0);
    },
    unansweredFor: (request) => callerOf(request)?.unansweredFor ?? 0,
    ...(backend.inspect && { inspect: backend.inspect.bind(backend) }),
    ...(backend.forceRelease && {
      forceRelease: (key: string) => queues.forceRelease(key),
    }),
    ...(backend.casStore && { casStore: backend.casStore }),
    observe(listener) {
      provider.observe(listener);
    },
  };
}

function callerOf({ state }: AcquireRequest): MemberCaller | undefined {
  return state instanceof MemberCaller ? state : undefined;
}

/** A request of a provider that is built on this one, as a caller. */
class MemberCaller extends Caller implements GrantHolder {
  readonly isAlone = true;
  readonly endsAt = Infinity;
  /** It got an error, so it is released, or asks again as another caller. */
  hasFailed = false;
  #held: HeldGrant | undefined;
  /** To the signal of its request. */
  #isListening = false;
  /** To the ask in flight. */
  #answer: { resolve(answer: Grant | 'busy'): void; reject(error: unknown): void } | undefined;

  constructor(
    private readonly request: AcquireRequest,
    private readonly keyQueue: KeyQueue,
    provider: ProviderCore,
  ) {
    super(termsOf(request, provider), keyQueue, provider);
  }

  ask(): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      this.#answer = { resolve, reject };
      if (this.#held) {
        this.#grant(this.#held);
        return;
      }
      const { wait } = this.request;
      this.deadline = wait > 0 ? Infinity : this.provider.clock.now();
      if (!this.isQueued) this.keyQueue.add(this);
      else if (!this.keyQueue.again(this) && wait <= 0) this.keyQueue.onTime(this);
    });
  }

  get unansweredFor(): number {
    return this.isQueued ? this.keyQueue.unansweredFor : 0;
  }

  async renew(lease: number): Promise<RenewOutcome> {
    const held = this.#held;
    if (!held?.isValid()) return 'lost';
    const { backend, suspension } = this.provider;
    held.changeLease(lease);
    const suspensions = suspension.observe();
    const number = held.beginRenewal();
    const outcome = await backend.renew(held.request, held.lease);
    if (outcome === 'lost') held.lose('revoked');
    else if (outcome !== 'unknown') held.confirm(number, outcome.validUntil, suspensions);
    return outcome;
  }

  release(intent: ReleaseIntent): Promise<ReleaseOutcome> {
    const held = this.#held;
    this.#settle('busy');
    if (held) return held.isValid() ? held.release(this, intent) : Promise.resolve('lost');
    return this.isQueued ? this.keyQueue.withdraw(this) : Promise.resolve('lost');
  }

  enter(grant: HeldGrant): void {
    this.#held = grant;
    grant.isUsed = true;
    grant.holders.add(this);
    this.#grant(grant);
  }

  lose(_reason: LossReason, cause: unknown): void {
    this.request.lost(cause);
  }

  refuseBusy(): void {
    this.#settle('busy');
  }

  refuseUnavailable(cause: unknown): void {
    const { key } = this.request;
    this.refuse(
      cause ?? new LockUnavailableError(`The backend did not answer when it was asked for "${key}".`, { key }),
    );
  }

  refuse(error: unknown): void {
    this.hasFailed = true;
    this.unanswered(error);
  }

  unanswered(error: unknown): void {
    this.#answer?.reject(error);
    this.#forgetAnswer();
  }

  waits(instead?: LockError): void {
    if (this.isLate) return;
    // Not before: a signal is made when it is read, and who asks without a queue is answered soon.
    const { signal } = this.request;
    signal.addEventListener('abort', this.#onAbort, { once: true });
    this.#isListening = true;
    if (signal.aborted) void Promise.resolve().then(this.#onAbort);
    this.request.waits(instead);
  }

  readonly #onAbort = (): void => {
    if (!this.#answer || this.#held) return;
    if (this.isQueued) void this.keyQueue.withdraw(this);
    this.#settle('busy');
  };

  #grant({ validUntil, lease, followers, token }: HeldGrant): void {
    this.#settle({ fencingToken: token, validUntil, lease, followers });
  }

  #settle(answer: Grant | 'busy'): void {
    this.#answer?.resolve(answer);
    this.#forgetAnswer();
  }

  #forgetAnswer(): void {
    if (this.#isListening) this.request.signal.removeEventListener('abort', this.#onAbort);
    this.#isListening = false;
    this.#answer = undefined;
  }
}

function termsOf(request: AcquireRequest, { clock, name }: ProviderCore): AcquireTerms {
  const { key, mode, limited, lease, renew, minHold, otherKeysHeld, wait, since, callers } = request;
  const now = clock.now();
  return {
    subject: { key, provider: name, mode, method: null, template: null },
    timing: { lease, renew, minHold },
    limited,
    startedAt: now,
    since,
    deadline: wait > 0 ? Infinity : now,
    signal: undefined,
    otherKeysHeld,
    callers,
    outerLocks: [],
    around: undefined,
  };
}
