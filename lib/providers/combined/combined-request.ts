import type { Clock } from '../../api/clock.js';
import { type LockError, LockUnavailableError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock-mode.js';
import type {
  AcquireRequest,
  Grant,
  Holding,
  Member,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import type { Random } from '../../api/random.js';
import { UNUSED } from '../shared/probe.js';
import { isUnavailable } from '../../core/toolkit/retryable.js';
import { pause } from '../../core/toolkit/timing.js';

const NEVER = new AbortController().signal;

/** The part of a request in one member, under an id that only this member gets. */
class MemberRequest implements AcquireRequest {
  readonly key: string;
  readonly mode: LockMode;
  readonly lease: number;
  readonly minHold: number;
  readonly otherKeysHeld: number;
  readonly callers = 1;
  /** The member's own. */
  state: unknown;
  /** Aborts when the member is not waited for any more. */
  signal = NEVER;
  grant: Grant | undefined;
  /** Until when it is held, on the monotonic clock; in the past once it is lost. */
  validUntil = -Infinity;

  constructor(
    readonly member: Member,
    readonly id: string,
    private readonly request: AcquireRequest,
    private readonly onLost: (lock: MemberRequest, cause: unknown) => void,
  ) {
    this.key = request.key;
    this.mode = request.mode;
    this.lease = request.lease;
    this.minHold = request.minHold;
    this.otherKeysHeld = request.otherKeysHeld;
  }

  get since(): number {
    return this.request.since;
  }

  // A caller whose time is up between two members still gets those that are free.
  get wait(): number {
    return this.signal.aborted ? 0 : this.request.wait;
  }

  waits(instead?: LockError): void {
    this.request.waits(instead);
  }

  lost(cause?: unknown): void {
    this.onLost(this, cause);
  }
}

/**
 * One request in all members, and the lock that it becomes: held while every member has granted it and keeps it.
 *
 * The members are asked one after the other in the configured order, so no two processes wait for each other in a cycle. They are
 * released in reverse, so a caller that finds the first member free finds the others free as well.
 */
export class CombinedRequest {
  readonly #locks: MemberRequest[] = [];
  #isComplete = false;
  #isReleased = false;
  /** Until when the lock is held, as last reported to the core, on the monotonic clock. */
  #reportedUntil = -Infinity;
  /** Ends the wait for a member. */
  #waiting: AbortController | undefined;
  /** Answers the ask in flight as busy. */
  #answerBusy: () => void = () => undefined;

  constructor(
    private readonly request: AcquireRequest,
    private readonly members: readonly Member[],
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /**
   * Asks the members in order, from the first that has not granted yet. `lost`: what one member had granted was lost before all
   * had. What was granted is still to be released then, and after `busy`.
   *
   * @throws LockUnavailableError when a member has not answered; it can be asked again
   */
  async acquire(): Promise<Grant | 'busy' | 'lost'> {
    const end = new AbortController();
    this.#waiting = end;
    const { wait } = this.request;
    if (wait > 0) abortWith(end, this.request.signal);
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
          if (answer !== 'busy') void member.release(lock, UNUSED);
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
    return { lease, validUntil: this.#report(), fencingToken: null };
  }

  /** For how many ms the member that is asked has not answered. */
  get unansweredFor(): number {
    const asked = this.#locks.at(-1);
    return (asked && !asked.grant && asked.member.unansweredFor?.(asked)) || 0;
  }

  /** The holder that keeps it out of the member that is asked. */
  get heldBy(): Holding | null {
    const asked = this.#locks.at(-1);
    return (asked && !asked.grant && asked.member.heldBy?.(asked)) || null;
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
    this.#answerBusy();
    return new Promise((resolve) => {
      void this.#releaseInReverse({ keepFor: retainFor, failed }, resolve).then(resolve);
    });
  }

  #begin(member: Member): MemberRequest {
    const lock = new MemberRequest(member, this.random.id(), this.request, this.#onLost);
    this.#locks.push(lock);
    return lock;
  }

  /** A member reports its lock as lost. */
  readonly #onLost = (lock: MemberRequest, cause: unknown): void => {
    if (this.#isReleased) return;
    lock.validUntil = -Infinity;
    if (this.#isComplete) this.request.lost(cause);
    else this.#stopAsking();
  };

  /** The ask in flight is answered as busy now, also if the member has not answered at all. */
  #stopAsking(): void {
    const asked = this.#locks.at(-1);
    if (!asked || asked.grant) return;
    void asked.member.release(asked, UNUSED);
    this.#answerBusy();
  }

  async #ask(lock: MemberRequest, { signal }: AbortController): Promise<Grant | 'busy'> {
    lock.signal = signal;
    const stopped = new Promise<'busy'>((resolve) => {
      this.#answerBusy = () => {
        resolve('busy');
      };
    });
    try {
      return await Promise.race([lock.member.acquire(lock), stopped]);
    } catch (error) {
      // Something is left in the members before it.
      if (isUnavailable(error) && !error.sent && lock !== this.#locks[0]) {
        const { key, provider } = error;
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
      if ((await this.renew(this.request.lease)) === 'lost') this.#stopAsking();
    }
  }

  async #releaseInReverse(options: ReleaseOptions, report: (outcome: ReleaseOutcome) => void): Promise<ReleaseOutcome> {
    let isUnknown = false;
    for (const lock of this.#locks.toReversed()) {
      const { member } = lock;
      // A member that cannot retain keys frees its own immediately.
      const keepFor = member.capabilities.minHold ? options.keepFor : 0;
      const outcome = await member.release(lock, { ...options, keepFor });
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

  #granted(): (MemberRequest & { readonly grant: Grant })[] {
    return this.#locks.filter((lock): lock is MemberRequest & { readonly grant: Grant } => lock.grant !== undefined);
  }
}

async function renewIn(lock: MemberRequest, lease: number): Promise<RenewOutcome> {
  try {
    return await lock.member.renew(lock, lease);
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
