import { type LockError, LockUnavailableError } from '../../api/errors.js';
import type { AcquireRequest, Grant, Member, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import { asItIs, type ReleaseIntent } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';
import { Caller } from './caller.js';
import type { KeyQueue } from './key-queue.js';
import type { KeyQueues } from './key-queues.js';
import type { KeyRequest } from './key-request.js';

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
    acquire(request: AcquireRequest<MemberCaller>) {
      let caller = request.state;
      if (caller === undefined || caller.hasFailed) {
        caller = new MemberCaller(request, queues.of(request.key, request.otherKeysHeld), provider);
        request.state = caller;
      }
      return caller.ask();
    },
    renew: ({ state }: AcquireRequest<MemberCaller>, lease) => state?.renew(lease) ?? Promise.resolve('lost'),
    release(request: AcquireRequest<MemberCaller>, { keepFor, failed }) {
      const now = provider.clock.now();
      const intent = { keepUntil: keepFor === 0 ? 0 : now + keepFor, failed };
      // What nobody asked for is released too: the answer shows that the backend is there.
      return request.state?.release(intent) ?? provider.releases.send(request, intent, 0, asItIs);
    },
    unansweredFor: ({ state }: AcquireRequest<MemberCaller>) => state?.unansweredFor ?? 0,
    ...(backend.inspect && { inspect: backend.inspect.bind(backend) }),
    ...(backend.forceRelease && {
      forceRelease: (key: string) => queues.forceRelease(key),
    }),
    ...(backend.casStore && { casStore: backend.casStore }),
    ...(backend.records && { records: backend.records }),
    observe(listener) {
      provider.observe(listener);
    },
  };
}

/** A request of a provider that is built on this one, as a caller. */
class MemberCaller extends Caller<KeyRequest> {
  readonly isAlone = true;
  readonly callers: number;
  readonly endsAt = Infinity;
  /** It got an error, so it is released, or asks again as another caller. */
  hasFailed = false;
  /** What it holds by, or has held. */
  #granted: KeyRequest | undefined;
  /** To the signal of its request. */
  #isListening = false;
  /** To the ask in flight. */
  #answer: { resolve(answer: Grant | 'busy'): void; reject(error: unknown): void } | undefined;

  /** @param request of the provider that is built on this one */
  constructor(
    private readonly request: AcquireRequest,
    private readonly keyQueue: KeyQueue,
    private readonly provider: ProviderCore,
  ) {
    const { clock } = provider;
    const now = clock.now();
    super(request, now, request.since, request.wait > 0 ? Infinity : now, keyQueue, clock);
    this.callers = request.callers;
  }

  ask(): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      this.#answer = { resolve, reject };
      if (this.#granted) {
        this.#grant(this.#granted);
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

  renew(lease: number): Promise<RenewOutcome> {
    const granted = this.#stillGranted(this.provider.clock.now());
    if (granted === undefined) return Promise.resolve('lost');
    granted.changeLease(lease);
    return granted.renewNow(this.provider.suspension.observe());
  }

  release(intent: ReleaseIntent): Promise<ReleaseOutcome> {
    this.#settle('busy');
    if (this.isQueued) return this.keyQueue.withdraw(this);
    const now = this.provider.clock.now();
    return this.#stillGranted(now)?.release(this, intent, now, asItIs) ?? Promise.resolve('lost');
  }

  enter(request: KeyRequest): void {
    this.#granted = request;
    request.use();
    request.enter(this);
    this.#grant(request);
  }

  renewed(): void {
    // The provider that is built on this one has the answer.
  }

  expire(now: number): void {
    this.#granted?.expire(now);
  }

  lose(): void {
    // Its request knows.
  }

  onLost(cause: unknown): void {
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
    // Not before: a signal is made when it is read, and an ask that does not queue is answered soon.
    const { signal } = this.request;
    signal.addEventListener('abort', this.#onAbort, { once: true });
    this.#isListening = true;
    if (signal.aborted) void Promise.resolve().then(this.#onAbort);
    this.request.waits(instead);
  }

  readonly #onAbort = (): void => {
    if (!this.#answer || this.#granted) return;
    if (this.isQueued) void this.keyQueue.withdraw(this);
    this.#settle('busy');
  };

  /** What it holds by, unless that is over by the clock. */
  #stillGranted(now: number): KeyRequest | undefined {
    this.expire(now);
    return this.#granted?.isValid(now) ? this.#granted : undefined;
  }

  #grant({ held, followers, fencingToken }: KeyRequest): void {
    this.#settle({ fencingToken, validUntil: held.validUntil, lease: held.length, followers });
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
