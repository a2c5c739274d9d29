import type { LockError } from '../../api/errors.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type {
  AcquireRequest,
  Grant,
  Holding,
  MemberLockRequest,
  MemberTerms,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { HeldLease } from '../hold/held-lease.js';
import { identity, type ReleaseIntent } from '../hold/releases.js';
import type { DenseSetItem } from '../toolkit/dense-set.js';
import { promised } from '../toolkit/promised.js';
import { isRetryable, wasSent } from '../toolkit/retryable.js';
import { retainedUntil } from '../toolkit/validity.js';
import type { MemberRequests } from './member-requests.js';

/** The backend granted the lock, and the lease hasn't expired or been released. */
interface Granted {
  readonly phase: 'granted';
  readonly grant: Grant;
  readonly lease: HeldLease;
  readonly grantedAt: number;
}

/**
 * - `new`: the request was never sent.
 * - `sent`: the backend has neither responded to nor queued the request.
 * - `queued`: the request is waiting in the backend's queue.
 * - `unanswered`: the last attempt failed.
 * - `busy`: the last attempt was refused and left nothing on the backend.
 * - `over`: the lock was released or lost, and the id is invalid.
 */
type Stage =
  | { readonly phase: 'new' | 'queued' | 'unanswered' | 'busy' | 'over' }
  | { readonly phase: 'sent'; readonly sentAt: number }
  | Granted;

/** A composite provider's request to a member's backend. */
export class CoreMemberRequest implements AcquireRequest, MemberLockRequest, DenseSetItem {
  readonly id: string;
  readonly key: string;
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly lease: number;
  readonly minHold: number;
  readonly otherKeysHeld: number;
  /** The backend's state for this request. */
  state: unknown;
  seen: unknown;
  slot = -1;
  #stage: Stage = { phase: 'new' };
  /** Whether a command may have reached the server. */
  #isSent = false;
  /** Whether the server took the lock away before the grant arrived. */
  #isRevoked = false;

  constructor(
    private readonly origin: AcquireRequest,
    private readonly terms: MemberTerms,
    private readonly all: MemberRequests,
  ) {
    this.id = terms.id;
    this.lease = terms.lease;
    this.minHold = terms.minHold;
    this.key = origin.key;
    this.mode = origin.mode;
    this.limited = origin.limited;
    this.otherKeysHeld = origin.otherKeysHeld;
  }

  // For the backend.

  get since(): number {
    return this.origin.since;
  }

  get wait(): number {
    return this.terms.wait;
  }

  get callers(): number {
    return this.terms.callers;
  }

  get signal(): AbortSignal {
    return this.terms.signal;
  }

  waits(instead?: LockError): void {
    if (instead === undefined) this.all.core.reachability.answered();
    const { phase } = this.#stage;
    if (phase !== 'sent' && phase !== 'queued') return;
    this.#stage = { phase: 'queued' };
    this.#isSent ||= instead === undefined;
    this.terms.waits(instead);
  }

  lost(cause?: unknown): void {
    if (this.#stage.phase === 'granted') this.#lose(this.#stage, cause);
    else this.#isRevoked = true;
  }

  // For the composite.

  acquire(): Promise<Grant | 'busy'> {
    const { backend, clock } = this.all.core;
    const stage = this.#stage;
    if (stage.phase === 'over') return Promise.resolve('busy');
    if (stage.phase === 'granted') {
      return Promise.resolve({ ...stage.grant, validUntil: this.validUntil, followers: 0 });
    }
    this.#stage = { phase: 'sent', sentAt: clock.now() };
    // This request isn't added to `releases.inFlight`, because the composite's own attempt is in flight for at least as
    // long, and its `close` waits for that attempt. Composite providers request one key at a time, so no backend
    // returns `not-asked`.
    const onAnswer = (answer: Grant | 'busy' | 'not-asked') => this.#onAnswer(answer === 'not-asked' ? 'busy' : answer);
    const onFailure = (error: unknown) => this.#onFailure(error);
    return promised(() => backend.acquire(this)).then(onAnswer, onFailure);
  }

  get unansweredFor(): number {
    const { backend, clock } = this.all.core;
    const stage = this.#stage;
    if (stage.phase === 'queued') return backend.unansweredFor?.(this) ?? 0;
    return stage.phase === 'sent' ? clock.now() - stage.sentAt : 0;
  }

  get heldBy(): Holding | null {
    return this.all.core.backend.heldBy?.(this) ?? null;
  }

  get validUntil(): number {
    return this.#stage.phase === 'granted' ? this.#stage.lease.validUntil : -Infinity;
  }

  async renew(length: number): Promise<RenewOutcome> {
    const { backend, clock, reachability } = this.all.core;
    const now = clock.now();
    this.expire(now);
    const stage = this.#stage;
    if (stage.phase !== 'granted') return 'lost';
    const { lease } = stage;
    const number = lease.beginRenewal(now, length);
    this.all.endsAt(lease.validUntil);
    const outcome = await backend.renew(this, length);
    if (outcome === 'lost') this.#lose(stage);
    else this.expire(clock.now());
    if (typeof outcome === 'object' && this.#stage === stage) {
      lease.acknowledged(number, outcome.validUntil, 0);
      this.all.endsAt(lease.validUntil);
      reachability.answered();
    }
    return outcome;
  }

  release({ keepFor, failed }: ReleaseOptions): Promise<ReleaseOutcome> {
    const { clock, releases } = this.all.core;
    const now = clock.now();
    this.expire(now);
    const stage = this.#stage;
    const { phase } = stage;
    const intent = { keepUntil: keepFor === 0 ? 0 : now + keepFor, failed };
    if (phase === 'granted') return this.#sendRelease(stage, intent, now);
    this.#stage = { phase: 'over' };
    if (phase === 'busy' || phase === 'over') return Promise.resolve('lost');
    // Sends the release even if the request was never sent: the response shows that the backend is reachable.
    if (phase === 'new') return releases.send(this, intent, 0, identity, now);
    return releases.releaseUnused(this, this.#isSent || phase !== 'unanswered');
  }

  // Methods for this member's requests.

  /** Treats the lock as lost if its lease has expired. */
  expire(now: number): void {
    const stage = this.#stage;
    if (stage.phase === 'granted' && now >= stage.lease.validUntil) this.#lose(stage);
  }

  #onAnswer(answer: Grant | 'busy'): Grant | 'busy' {
    const { clock, reachability, releases } = this.all.core;
    const { phase } = this.#stage;
    if (phase === 'over') {
      // The id is invalid, so release a grant that arrives this late.
      if (answer !== 'busy') void releases.releaseUnused(this, true);
      return 'busy';
    }
    reachability.answered();
    if (answer === 'busy') {
      // After an abort, a backend responds without waiting for the server, so a release must remove the request from
      // the server's queue.
      const hasLeft = phase === 'queued' && this.signal.aborted;
      this.#stage = { phase: hasLeft ? 'over' : 'busy' };
      if (hasLeft) void releases.releaseUnused(this, true);
      return 'busy';
    }
    const grant = this.#isRevoked ? { ...answer, validUntil: -Infinity } : answer;
    this.#stage = { phase: 'granted', grant, lease: new HeldLease(grant, 0), grantedAt: clock.now() };
    this.all.add(this);
    return grant;
  }

  #onFailure(error: unknown): 'busy' {
    if (this.#stage.phase === 'over') return 'busy';
    this.#stage = { phase: 'unanswered' };
    this.#isSent ||= wasSent(error);
    if (isRetryable(error)) this.all.core.reachability.failed(error);
    throw error;
  }

  /** Releases the lock before reporting the loss, because a listener may request the key again. */
  #lose(stage: Granted, cause?: unknown): void {
    if (this.#stage !== stage) return;
    const now = this.all.core.clock.now();
    const keepUntil = this.minHold > 0 ? retainedUntil(stage.grantedAt, this.minHold, now) : 0;
    void this.#sendRelease(stage, { keepUntil, failed: true }, now);
    this.terms.lost(cause);
  }

  #sendRelease({ lease }: Granted, intent: ReleaseIntent, now: number): Promise<ReleaseOutcome> {
    this.#stage = { phase: 'over' };
    this.all.delete(this);
    const lasting = Math.max(lease.longest, intent.keepUntil - now);
    return this.all.core.releases.send(this, intent, lasting, identity, now);
  }
}
