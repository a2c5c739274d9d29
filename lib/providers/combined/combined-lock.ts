import type { Clock } from '../../api/clock.js';
import { LockUnavailableError } from '../../api/errors.js';
import type {
  AcquireRequest,
  Grant,
  Member,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import { UNUSED } from '../../core/toolkit/composite.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { pause } from '../../core/toolkit/timing.js';

/** What one attempt has in one member, or asks for there, under an id that only this member gets. */
interface MemberLock {
  readonly member: Member;
  readonly id: string;
  /** What the member was asked for: the latest ask that may have reached its server. */
  request: AcquireRequest | undefined;
  wasSent: boolean;
  grant: Grant | undefined;
  /** Until when it is held, on the monotonic clock; in the past once it is lost. */
  validUntil: number;
}

/**
 * One attempt in all members, and the lock that it becomes: held while every member has granted it and keeps it.
 *
 * The members are asked one after the other in the configured order, so no two processes wait for each other in a circle. They are
 * released in reverse, so a caller that finds the first member free finds the others free as well.
 */
export class CombinedLock {
  readonly #locks: MemberLock[] = [];
  #request: AcquireRequest;
  #isComplete = false;
  #isReleased = false;
  /** Until when the lock is held, as last reported to the core, on the monotonic clock. */
  #reportedUntil = -Infinity;
  /** Ends the wait for a member. */
  #waiting: AbortController | undefined;

  constructor(
    request: AcquireRequest,
    private readonly members: readonly Member[],
    private readonly clock: Clock,
    private readonly random: Random,
    /** Leads from the ids that members know to their locks. */
    private readonly byMemberId: Map<string, CombinedLock>,
  ) {
    this.#request = request;
  }

  get holder(): string {
    return this.#request.holder;
  }

  /** All members have granted it. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** The caller asks again, and may not wait as long any more. */
  askedAgain(request: AcquireRequest): void {
    this.#request = request;
  }

  /**
   * Asks the members in order, from the first that has not granted yet. `lost`: what one member had granted was lost before all
   * had. What was granted is still to be released then, and after `busy`.
   *
   * @throws LockUnavailableError when a member has not answered; it can be asked again
   */
  async acquire(): Promise<Grant | 'busy' | 'lost'> {
    const end = new AbortController();
    this.#waiting = end;
    const { wait, holder, key, mode } = this.#request;
    if (wait > 0) abortWith(end, this.#request.signal);
    let isRenewing = false;
    try {
      for (const [index, member] of this.members.entries()) {
        const lock = this.#locks[index] ?? this.#begin(member);
        if (lock.grant) continue;
        if (index > 0 && wait > 0 && !isRenewing) {
          isRenewing = true;
          void this.#renewUntil(end);
        }
        const answer = await this.#ask(lock, end);
        if (this.#isReleased) {
          // Its id ended while it was in flight, and that release may have arrived first.
          if (answer !== 'busy') void member.release(answer, UNUSED);
          return 'busy';
        }
        if (answer !== 'busy') {
          lock.grant = answer;
          lock.validUntil = answer.validUntil;
        }
        if (this.#hasLost()) return 'lost';
        if (answer === 'busy') return 'busy';
      }
    } finally {
      // Nothing listens to the caller any more, who may ask again and again with the same signal.
      end.abort();
    }
    if (this.#hasLost()) return 'lost';
    this.#isComplete = true;
    const lease = Math.min(...this.#granted().map(({ grant }) => grant.lease));
    return { key, holder, mode, lease, validUntil: this.#report(), fencingToken: null };
  }

  /** Renews in all members at the same time. A loss is reported immediately; a renewal when all have answered. */
  renew(lease: number): Promise<RenewOutcome> {
    if (this.#isReleased) return Promise.resolve('lost');
    return new Promise((resolve) => {
      const outcomes = this.#granted().map(async (lock) => {
        const outcome = await renewIn(lock, lease);
        if (outcome === 'lost') {
          lock.validUntil = -Infinity;
          resolve('lost');
        } else if (outcome !== 'unknown' && lock.validUntil > -Infinity) lock.validUntil = outcome.validUntil;
        return outcome;
      });
      void Promise.all(outcomes).then((all) => {
        if (this.#hasLost()) resolve('lost');
        else resolve(all.includes('unknown') ? 'unknown' : { validUntil: this.#report() });
      });
    });
  }

  /** The member that knows this id reports its lock as lost. */
  lost(id: string): void {
    const lock = this.#locks.find((each) => each.id === id);
    if (lock) lock.validUntil = -Infinity;
    this.#waiting?.abort();
  }

  /**
   * Releases in all members, the last one first. A loss is reported immediately; the other outcomes when all have answered. The core
   * repeats what a member has not answered.
   *
   * When one member has lost the lock, the others retain it until the time that was reported to the holder, who may still be about to
   * stop.
   */
  release({ keepFor, failed }: ReleaseOptions): Promise<ReleaseOutcome> {
    const keepUntil = this.#isComplete && this.#hasLost() ? this.#reportedUntil : -Infinity;
    const retainFor = Math.max(0, keepFor, keepUntil - this.clock.now());
    this.#isReleased = true;
    this.#waiting?.abort();
    return new Promise((resolve) => {
      void this.#releaseInReverse({ keepFor: retainFor, failed }, resolve).then(resolve);
    });
  }

  #begin(member: Member): MemberLock {
    const id = this.random.id();
    const lock = { member, id, request: undefined, wasSent: false, grant: undefined, validUntil: -Infinity };
    this.#locks.push(lock);
    this.byMemberId.set(id, this);
    return lock;
  }

  async #ask(lock: MemberLock, { signal }: AbortController): Promise<Grant | 'busy'> {
    const { key, mode, lease, renew, minHold, depth = 0, age } = this.#request;
    // A caller whose time is up between two members still gets those that are free.
    const wait = signal.aborted ? 0 : this.#request.wait;
    const request = { key, holder: lock.id, mode, lease, renew, minHold, depth, wait, age, callers: 1, signal };
    if (!lock.wasSent) lock.request = request;
    try {
      return await lock.member.acquire(request);
    } catch (error) {
      const isUnsent = isUnavailable(error) && !error.sent;
      lock.wasSent ||= !isUnsent;
      // Something is left in the members before it.
      if (isUnsent && lock !== this.#locks[0]) {
        const { provider } = error;
        throw new LockUnavailableError(error.message, { key, provider, cause: error });
      }
      throw error;
    }
  }

  /** Renews what is granted while the next member is waited for, and ends that wait when some of it is lost. */
  async #renewUntil(end: AbortController): Promise<void> {
    for (;;) {
      const lease = Math.min(...this.#granted().map(({ grant }) => grant.lease));
      await pause(this.clock, lease / 3, end.signal);
      if (end.signal.aborted) return;
      if ((await this.renew(this.#request.lease)) === 'lost') end.abort();
    }
  }

  async #releaseInReverse(options: ReleaseOptions, report: (outcome: ReleaseOutcome) => void): Promise<ReleaseOutcome> {
    let isUnknown = false;
    for (const { member, id, request, grant } of this.#locks.toReversed()) {
      const asked = grant ?? request;
      // A member that cannot retain keys frees its own immediately.
      const keepFor = member.capabilities.minHold ? options.keepFor : 0;
      const outcome = asked ? await member.release(asked, { ...options, keepFor }) : 'lost';
      this.byMemberId.delete(id);
      if (outcome === 'unknown') isUnknown = true;
      else if (outcome !== 'released' && this.#isComplete) report(outcome);
    }
    if (isUnknown) return 'unknown';
    return this.#isComplete ? 'released' : 'lost';
  }

  /** Whether a member has lost what it had granted, or may have. */
  #hasLost(): boolean {
    return this.#granted().some(({ validUntil }) => validUntil <= this.clock.now());
  }

  #report(): number {
    this.#reportedUntil = Math.min(...this.#locks.map(({ validUntil }) => validUntil));
    return this.#reportedUntil;
  }

  #granted(): (MemberLock & { readonly grant: Grant })[] {
    return this.#locks.filter((lock): lock is MemberLock & { readonly grant: Grant } => lock.grant !== undefined);
  }
}

async function renewIn({ member, grant }: { member: Member; grant: Grant }, lease: number): Promise<RenewOutcome> {
  try {
    return await member.renew(grant, lease);
  } catch {
    // A member that fails has not answered.
    return 'unknown';
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
