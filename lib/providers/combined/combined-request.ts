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
 * One request to all members, and the lock that it becomes: held while every member holds it.
 *
 * Members are requested one after the other in the configured order, so no two processes wait for each other in a cycle. They are released in
 * reverse, so a caller that finds the first member free finds the others free as well.
 */
export class CombinedRequest {
  /** The requests so far, in the order of the members. */
  readonly #parts: MemberLockRequest[] = [];
  /** How many members have granted. The part after these is the one in flight. */
  #granted = 0;
  /** The shortest lease that a member granted. */
  #lease = Infinity;
  #isComplete = false;
  #isReleased = false;
  /** Until when the lock is held, as last reported to the core. */
  #reportedUntil = -Infinity;
  /** Aborts the wait for a member. */
  #waiting: AbortController | undefined;
  /** Resolves the attempt in flight as busy. */
  #answerBusy: () => void = () => undefined;

  constructor(
    private readonly request: AcquireRequest,
    private readonly members: readonly Member[],
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /**
   * Requests the members in order, from the first that has not granted yet. `lost`: a member lost its lock before all had granted. After `busy` and
   * `lost`, the locks that were granted must still be released.
   *
   * @throws LockUnavailableError when a member did not answer; the request can be repeated
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
      // Stops listening to the caller, who may repeat the request with the same signal.
      end.abort();
    }
    if (this.#hasLost()) return 'lost';
    this.#isComplete = true;
    return { lease: this.#lease, validUntil: this.#report(), fencingToken: null };
  }

  /** For how many ms the member in flight has not answered. */
  get unansweredFor(): number {
    return this.#inFlight?.unansweredFor ?? 0;
  }

  /** The holder that keeps the request out of the member in flight. */
  get heldBy(): Holding | null {
    return this.#inFlight?.heldBy ?? null;
  }

  /** Renews in all members at the same time. A member that has lost its lock reports that itself, without waiting for silent ones. */
  async renew(lease: number): Promise<RenewOutcome> {
    if (this.#isReleased) return 'lost';
    // A member that fails did not answer.
    const outcomes = this.#grantedParts.map((part) => part.renew(lease).catch(() => 'unknown' as const));
    const all = await Promise.all(outcomes);
    if (this.#hasLost()) return 'lost';
    return all.includes('unknown') ? 'unknown' : { validUntil: this.#report() };
  }

  /**
   * Releases in all members, the last one first. A loss is reported immediately; the other outcomes when all have answered.
   *
   * If one member lost the lock, the others retain it until the time that was reported to the holder, who may not have stopped yet.
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
      // A caller whose time is up between two members still gets the members that are free.
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

  /** Resolves the attempt in flight as busy, even if the member never answers. */
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
      // The members before this one have locks to release.
      if (isUnavailable(error) && !error.sent && this.#granted > 0) {
        const { key, provider } = error;
        throw new LockUnavailableError(error.message, { key, provider, cause: error });
      }
      throw error;
    }
  }

  /** Renews the granted locks during the wait for the next member, and ends that wait when one of them is lost. */
  async #renewUntil(end: AbortController): Promise<void> {
    for (;;) {
      await pause(this.clock, this.#lease / 3, end.signal);
      if (end.signal.aborted) return;
      if ((await this.renew(this.request.lease)) === 'lost') this.#stopWaiting();
    }
  }

  async #releaseInReverse(options: ReleaseOptions, report: (outcome: ReleaseOutcome) => void): Promise<ReleaseOutcome> {
    let isUnknown = false;
    for (const [index, part] of [...this.#parts.entries()].reverse()) {
      // A member that cannot retain keys frees its own immediately.
      const keepFor = this.members[index]?.capabilities.minHold ? options.keepFor : 0;
      const outcome = await part.release({ ...options, keepFor });
      if (outcome === 'unknown') isUnknown = true;
      else if (outcome !== 'released' && this.#isComplete) report(outcome);
    }
    if (isUnknown) return 'unknown';
    return this.#isComplete ? 'released' : 'lost';
  }

  /** Whether a member lost its lock, or may have. */
  #hasLost(): boolean {
    const now = this.clock.now();
    return this.#grantedParts.some(({ validUntil }) => validUntil <= now);
  }

  #report(): number {
    this.#reportedUntil = Math.min(...this.#parts.map(({ validUntil }) => validUntil));
    return this.#reportedUntil;
  }
}

/** Aborts `end` when `signal` does, and listens no longer than `end` lives. */
function abortWith(end: AbortController, signal: AbortSignal): void {
  const abort = () => {
    end.abort();
  };
  if (signal.aborted) abort();
  else signal.addEventListener('abort', abort, { signal: end.signal });
}
