import type { LockError } from '../../api/errors.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type { AcquireRequest, Grant, Holding, ReleaseOutcome, RenewOutcome } from '../../api/lock-provider.js';
import { DenseSet, type Placed } from '../toolkit/dense-set.js';
import { promised } from '../toolkit/promised.js';
import { isRetryable, wasSent } from '../toolkit/retryable.js';
import { HeldLease } from '../hold/held-lease.js';
import { asItIs, type ReleaseIntent } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';

/**
 * Requests of providers that are built on this one. Those queue their callers, repeat their asks and renew their locks by themselves, so their
 * requests go directly to the backend, beside those of the queues.
 */
export class MemberRequests {
  readonly #held = new DenseSet<MemberRequest>();
  /** No lease ends before this time, on the monotonic clock. It may be too early: a longer renewal or a release does not move it. */
  #firstEnd = Infinity;

  constructor(readonly core: ProviderCore) {}

  add(request: MemberRequest): void {
    this.#held.add(request);
    this.endsAt(request.validUntil);
  }

  /** A lease ends at this time, on the monotonic clock. */
  endsAt(time: number): void {
    if (time < this.#firstEnd) this.#firstEnd = time;
  }

  delete(request: MemberRequest): void {
    this.#held.delete(request);
  }

  /** Gives back what is over by the clock, before another caller of this process asks for it. */
  expire(): void {
    if (this.#firstEnd === Infinity) return;
    const now = this.core.clock.now();
    if (now < this.#firstEnd) return;
    this.#firstEnd = Infinity;
    for (const request of this.#held.values()) request.expire(now);
    for (const request of this.#held.values()) this.endsAt(request.validUntil);
  }
}

/**
 * A request of a provider that is built on this one, as the backend of this one sees it.
 *
 * - `free`: nothing of it is left at the backend: it was not asked for, or was busy.
 * - `asking`: its ask is in flight, and the backend has neither answered nor queued it.
 * - `queued`: it waits at the backend.
 * - `unanswered`: its last ask has failed.
 * - `granted`: it holds.
 * - `over`: it was released, or lost what it was granted.
 */
export class MemberRequest implements AcquireRequest, Placed {
  /** The backend's own. */
  state: unknown;
  seen: unknown;
  /** Among what is held. */
  place = -1;
  #phase: 'free' | 'asking' | 'queued' | 'unanswered' | 'granted' | 'over' = 'free';
  /** When it was last sent, on the monotonic clock. */
  #askedAt = -Infinity;
  /** Something of it may have reached the server. */
  #sent = false;
  /** The server took the lock away before the grant has arrived. */
  #isRevoked = false;
  #grant: Grant | undefined;
  /** From its first renewal on. */
  #held: HeldLease | undefined;
  /** Until when the key stays retained after a loss (`minHold`), on the monotonic clock; 0 for not at all. */
  #keepUntil = 0;

  /** @param request of the provider that is built on this one */
  constructor(
    private readonly request: AcquireRequest,
    private readonly all: MemberRequests,
  ) {}

  // For the backend: what the provider asks for that is built on this one.

  get id(): string {
    return this.request.id;
  }

  get key(): string {
    return this.request.key;
  }

  get mode(): LockMode {
    return this.request.mode;
  }

  get limited(): LimitShare | undefined {
    return this.request.limited;
  }

  get lease(): number {
    return this.request.lease;
  }

  get minHold(): number {
    return this.request.minHold;
  }

  get otherKeysHeld(): number {
    return this.request.otherKeysHeld;
  }

  get wait(): number {
    return this.request.wait;
  }

  get since(): number {
    return this.request.since;
  }

  get callers(): number {
    return this.request.callers;
  }

  get signal(): AbortSignal {
    return this.request.signal;
  }

  waits(instead?: LockError): void {
    if (instead === undefined) this.all.core.reachability.answered();
    if (this.#phase !== 'asking' && this.#phase !== 'queued') return;
    this.#phase = 'queued';
    this.#sent ||= instead === undefined;
    this.request.waits(instead);
  }

  lost(cause?: unknown): void {
    if (this.#phase === 'granted') this.#lose(cause);
    else this.#isRevoked = true;
  }

  // For the provider that is built on this one.

  /** Asks, the first time or again. Asked again, it finds its own hold. */
  ask(): Promise<Grant | 'busy'> {
    if (this.#phase === 'over') return Promise.resolve('busy');
    if (this.#phase === 'granted' && this.#grant) {
      return Promise.resolve({ ...this.#grant, validUntil: this.validUntil, followers: 0 });
    }
    const { backend, clock } = this.all.core;
    this.#phase = 'asking';
    this.#askedAt = clock.now();
    // While it is in flight, so is the ask of the provider that is built on this one: its `close` waits for both.
    // A request of a composite names no other before it, so it is always asked for.
    const onAnswer = (answer: Grant | 'busy' | 'not-asked') => this.#onAnswer(answer === 'not-asked' ? 'busy' : answer);
    const onFailure = (error: unknown) => this.#onFailure(error);
    return promised(() => backend.acquire(this)).then(onAnswer, onFailure);
  }

  /** For how many ms the backend has not answered a question about it. */
  get unansweredFor(): number {
    const { backend, clock } = this.all.core;
    if (this.#phase === 'queued') return backend.unansweredFor?.(this) ?? 0;
    return this.#phase === 'asking' ? clock.now() - this.#askedAt : 0;
  }

  /** The holder that keeps it out, as the backend last saw it for this request. */
  get heldBy(): Holding | null {
    return this.all.core.backend.heldBy?.(this) ?? null;
  }

  /** Until when it holds, on the monotonic clock. */
  get validUntil(): number {
    return this.#held?.validUntil ?? this.#grant?.validUntil ?? -Infinity;
  }

  /** Renews it to `lease` ms. Rejects as the backend does: the provider that is built on this one tells a refusal from silence by itself. */
  async renewNow(lease: number): Promise<RenewOutcome> {
    const { backend, clock, reachability } = this.all.core;
    const now = clock.now();
    this.expire(now);
    if (!this.#isHeld() || this.#grant === undefined) return 'lost';
    const held = (this.#held ??= new HeldLease(this.#grant, 0, false));
    held.change(lease);
    const number = held.beginRenewal(now);
    this.all.endsAt(held.validUntil);
    const outcome = await backend.renew(this, lease);
    if (outcome === 'lost') this.#lose();
    else this.expire(clock.now());
    if (typeof outcome === 'object' && this.#isHeld()) {
      held.acknowledged(number, outcome.validUntil, 0);
      this.all.endsAt(held.validUntil);
      reachability.answered();
    }
    return outcome;
  }

  /** Releases what it holds, or may have left behind. */
  release(intent: ReleaseIntent): Promise<ReleaseOutcome> {
    const { clock, releases } = this.all.core;
    const now = clock.now();
    this.expire(now);
    const phase = this.#phase;
    if (phase === 'granted') return this.#giveBack(intent, now);
    this.#phase = 'over';
    if (phase === 'free' || phase === 'over') return Promise.resolve('lost');
    return releases.giveUp(this, this.#sent || phase !== 'unanswered');
  }

  /** Loses the lease, if it is over by the clock. */
  expire(now: number): void {
    if (this.#phase === 'granted' && now >= this.validUntil) this.#lose();
  }

  // A method, because the answer changes while something is awaited.
  #isHeld(): boolean {
    return this.#phase === 'granted';
  }

  #onAnswer(answer: Grant | 'busy'): Grant | 'busy' {
    const { clock, reachability, releases } = this.all.core;
    if (this.#phase === 'over') {
      // Its id is dead. A grant that comes all the same is released whenever it comes.
      if (answer !== 'busy') void releases.giveUp(this, true);
      return 'busy';
    }
    reachability.answered();
    if (answer === 'busy') {
      const hasLeft = this.#phase === 'queued' && this.signal.aborted;
      this.#phase = hasLeft ? 'over' : 'free';
      // A backend answers an abort at once. The release takes the request out of the server's queue.
      if (hasLeft) void releases.giveUp(this, true);
      return answer;
    }
    const grant = this.#isRevoked ? { ...answer, validUntil: -Infinity } : answer;
    this.#phase = 'granted';
    this.#grant = grant;
    if (this.minHold > 0) this.#keepUntil = clock.now() + this.minHold;
    this.all.add(this);
    return grant;
  }

  #onFailure(error: unknown): 'busy' {
    if (this.#phase === 'over') return 'busy';
    this.#phase = 'unanswered';
    this.#sent ||= wasSent(error);
    if (isRetryable(error)) this.all.core.reachability.failed(error);
    throw error;
  }

  /** The lease is lost. The backend has it back before that is told: a listener may ask for the key again. */
  #lose(cause?: unknown): void {
    if (this.#phase !== 'granted') return;
    void this.#giveBack({ keepUntil: this.#keepUntil, failed: true }, this.all.core.clock.now());
    this.request.lost(cause);
  }

  #giveBack(intent: ReleaseIntent, now: number): Promise<ReleaseOutcome> {
    this.#phase = 'over';
    this.all.delete(this);
    const lasting = Math.max(this.#held?.longest ?? this.#grant?.lease ?? 0, intent.keepUntil - now);
    return this.all.core.releases.send(this, intent, lasting, asItIs, now);
  }
}
