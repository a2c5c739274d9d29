import type { Clock } from '../../api/clock.js';
import { LockUnavailableError } from '../../api/errors.js';
import type {
  AcquireRequest,
  Grant,
  Holding,
  Member,
  MemberLockRequest,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import { UNUSED } from '../shared/probe.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { pause } from '../../core/toolkit/timing.js';

const NEVER = new AbortController().signal;

/**
 * One request to all members, and the resulting lock, which is held while every member holds it.
 *
 * Members are requested one after the other in the configured order, so processes can't deadlock. They are released in
 * reverse order, so a caller that finds the first member free finds the others free as well.
 */
export class CombinedRequest {
  /** The member requests so far, in configured order. */
  readonly #parts: MemberLockRequest[] = [];
  /** How many members have granted the lock. The next member's request is in flight. */
  #granted = 0;
  /** The shortest lease granted by any member. */
  #lease = Infinity;
  #isComplete = false;
  #isReleased = false;
  /** When the granted locks may be renewed again. */
  #retryAt = -Infinity;
  /** The validity last reported to the core. */
  #reportedUntil = -Infinity;
  /** Aborts the wait for a member. */
  #waiting: AbortController | undefined;
  /** Ends the attempt in flight as busy. */
  #answerBusy: () => void = () => undefined;

  constructor(
    private readonly request: AcquireRequest,
    private readonly members: readonly Member[],
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /**
   * Requests the lock from the members in order, starting with the first that hasn't granted it. Resolves to `lost` if
   * a member lost its lock before all had granted theirs. After `busy` or `lost`, the caller must release what was
   * granted.
   *
   * @throws LockUnavailableError if a member did not respond; the request can be repeated
   */
  async acquire(): Promise<Grant | 'busy' | 'lost'> {
    const end = new AbortController();
    this.#waiting = end;
    const { wait } = this.request;
    if (wait > 0) abortWith(end, this.request.signal);
    let isRenewing = false;
    try {
      for (const member of this.members.slice(this.#granted)) {
        if (this.#granted > 0 && wait > 0 && !isRenewing) {
          isRenewing = true;
          void this.#renewUntil(end);
        }
        const answer = await this.#acquire(this.#inFlight ?? this.#addPart(member));
        if (this.#isReleased) return 'busy';
        if (answer !== 'busy') {
          this.#granted += 1;
          this.#lease = Math.min(this.#lease, answer.lease);
        }
        if (this.#hasLost()) return 'lost';
        if (answer === 'busy') return 'busy';
      }
    } finally {
      // Stops listening to the caller's signal, which a repeated request will use again.
      end.abort();
    }
    if (this.#hasLost()) return 'lost';
    this.#isComplete = true;
    return { lease: this.#lease, validUntil: this.#report(), fencingToken: null };
  }

  /** How long a command to the current member has been unanswered, in ms. */
  get unansweredFor(): number {
    return this.#inFlight?.unansweredFor ?? 0;
  }

  /** The holder that blocks this request at the current member. */
  get heldBy(): Holding | null {
    return this.#inFlight?.heldBy ?? null;
  }

  /**
   * Renews all members concurrently. A member that has lost its lock reports the loss itself, so reporting a loss never
   * has to wait for silent members.
   */
  async renew(lease: number): Promise<RenewOutcome> {
    if (this.#isReleased) return 'lost';
    // A failed renewal counts as unanswered.
    const outcomes = this.#grantedParts.map((part) => part.renew(lease).catch(() => 'unknown' as const));
    const all = await Promise.all(outcomes);
    if (this.#hasLost()) return 'lost';
    return all.includes('unknown') ? 'unknown' : { validUntil: this.#report() };
  }

  /**
   * Releases the members in reverse order. Resolves as soon as one reports a loss, or otherwise after all have
   * responded.
   *
   * If one member lost the lock, the others retain it for the last reported validity, because the holder may not have
   * stopped yet.
   */
  release({ keepFor, failed }: ReleaseOptions): Promise<ReleaseOutcome> {
    const keepUntil = this.#isComplete && this.#hasLost() ? this.#reportedUntil : -Infinity;
    const retainFor = Math.max(0, keepFor, keepUntil - this.clock.now());
    this.#isReleased = true;
    this.#waiting?.abort();
    this.#answerBusy();
    return new Promise((resolve) => {
      void this.#releaseInReverse({ keepFor: retainFor, failed }, resolve).then(resolve);
    });
  }

  get #inFlight(): MemberLockRequest | undefined {
    return this.#parts[this.#granted];
  }

  get #grantedParts(): readonly MemberLockRequest[] {
    return this.#parts.slice(0, this.#granted);
  }

  #addPart(member: Member): MemberLockRequest {
    const { request } = this;
    const signal = () => this.#waiting?.signal ?? NEVER;
    const part = member.request(request, {
      id: this.random.id(),
      lease: request.lease,
      minHold: request.minHold,
      callers: 1,
      // If the wait ends between two members, try the remaining ones without waiting.
      get wait() {
        return signal().aborted ? 0 : request.wait;
      },
      get signal() {
        return signal();
      },
      waits: (instead) => {
        request.waits(instead);
      },
      lost: (cause) => {
        this.#onLost(cause);
      },
    });
    this.#parts.push(part);
    return part;
  }

  #onLost(cause: unknown): void {
    if (this.#isReleased) return;
    if (this.#isComplete) this.request.lost(cause);
    else this.#stopWaiting();
  }

  /** Ends the attempt in flight as busy, even if the member never responds. */
  #stopWaiting(): void {
    void this.#inFlight?.release(UNUSED);
    this.#answerBusy();
  }

  async #acquire(part: MemberLockRequest): Promise<Grant | 'busy'> {
    const stopped = new Promise<'busy'>((resolve) => {
      this.#answerBusy = () => {
        resolve('busy');
      };
    });
    try {
      return await Promise.race([part.acquire(), stopped]);
    } catch (error) {
      // Even if this command wasn't sent, earlier members still have locks to release.
      if (isUnavailable(error) && !error.sent && this.#granted > 0) {
        const { key, provider } = error;
        throw new LockUnavailableError(error.message, { key, provider, cause: error });
      }
      throw error;
    }
  }

  /** Renews the granted locks while waiting for the next member. Stops that wait if one of them is lost. */
  async #renewUntil(end: AbortController): Promise<void> {
    for (;;) {
      // A grant that was handed over may be valid for less than its lease until its first renewal.
      const due = this.#validUntil - (this.#lease * 2) / 3;
      const delay = Math.max(due, this.#retryAt) - this.clock.now();
      // Even if the next member rejects each attempt immediately, a renewal that is due is sent.
      if (delay > 0) await pause(this.clock, delay, end.signal);
      if (end.signal.aborted) return;
      this.#retryAt = this.clock.now() + Math.min(this.#lease / 10, 1_000);
      if ((await this.renew(this.request.lease)) === 'lost') this.#stopWaiting();
    }
  }

  async #releaseInReverse(options: ReleaseOptions, report: (outcome: ReleaseOutcome) => void): Promise<ReleaseOutcome> {
    let isUnknown = false;
    for (const [index, part] of [...this.#parts.entries()].reverse()) {
      // A member that can't retain keys frees its lock immediately.
      const keepFor = this.members[index]?.capabilities.minHold ? options.keepFor : 0;
      const outcome = await part.release({ ...options, keepFor });
      if (outcome === 'unknown') isUnknown = true;
      else if (outcome !== 'released' && this.#isComplete) report(outcome);
    }
    if (isUnknown) return 'unknown';
    return this.#isComplete ? 'released' : 'lost';
  }

  /** Whether any member's lock has expired. */
  #hasLost(): boolean {
    return this.#validUntil <= this.clock.now();
  }

  /** When the first of the granted locks ends. */
  get #validUntil(): number {
    return Math.min(...this.#grantedParts.map(({ validUntil }) => validUntil));
  }

  #report(): number {
    this.#reportedUntil = this.#validUntil;
    return this.#reportedUntil;
  }
}

/** Aborts `end` when `signal` aborts, and stops listening once `end` aborts. */
function abortWith(end: AbortController, signal: AbortSignal): void {
  const abort = () => {
    end.abort();
  };
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort, { signal: end.signal });
}
