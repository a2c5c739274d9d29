import {
  type AcquireRequest,
  type Clock,
  type Grant,
  type Random,
  type ReleaseOutcome,
  validUntil,
} from '../../../engine/lock-provider.js';
import type { LeaseDatabase } from './lease-database.js';

/** What an attempt needs of its provider. */
export interface VersionLocking {
  readonly clock: Clock;
  readonly random: Random;
  readonly database: Pick<LeaseDatabase, 'leases' | 'createRow' | 'isBusy'>;
  onWaiting(holder: string): void;
  /** Takes note of something that goes on when nobody waits for it any more. */
  inBackground(work: Promise<unknown>): void;
}

// How long before a busy row is looked at again, in ms: doubled from the first to the longest, half of it at random so that
// processes do not march in step. One look is one indexed read.
const FIRST_PAUSE = 10;
const LONGEST_PAUSE = 200;
// How long before the end of the wait the last look is made, in ms.
const LAST_LOOK = 50;

/** One attempt to hold one lease, from its first ask to its release. */
export class VersionAttempt {
  #isOver = false;
  /** Its caller has left. Not told by `request.wait`: that has run down to 0 by then, as for an attempt that never waits. */
  #hasLeft = false;
  /** The version that a claim compares with which was sent and not answered: it may arrive at any time. */
  #openClaim: bigint | undefined;
  #keepUntil = -Infinity;
  #wake: (() => void) | undefined;

  constructor(
    private readonly locking: VersionLocking,
    private readonly name: string,
    private readonly holder: string,
  ) {}

  /** How long a renewal has to prolong to, so that a crash does not cut `minHold` short. */
  leaseOf(lease: number): number {
    return Math.max(lease, this.#keepUntil - this.locking.clock.now());
  }

  /** Asks, again and again while `request.wait` lasts. A repeated call finds the hold that an unanswered one has left. */
  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    if (request.wait <= 0) return this.#ask(request, () => undefined);
    const { signal } = request;
    return new Promise((resolve, reject) => {
      let isWaiting = false;
      const leave = () => {
        this.#hasLeft = true;
        // Until a busy row was seen nobody knows whether there is something to wait for. The next step finds that we left.
        // A claim on its way is another matter: it may be granted to nobody.
        if (this.#openClaim !== undefined) this.locking.inBackground(this.release(0));
        if (isWaiting) resolve('busy');
        this.#wake?.();
      };
      const tellWaiting = () => {
        if (isWaiting) return;
        isWaiting = true;
        this.locking.onWaiting(this.holder);
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#ask(request, tellWaiting)
        .finally(() => {
          signal.removeEventListener('abort', leave);
        })
        .then((answer) => {
          // Granted while it was leaving, after it had said that it is busy: nobody knows of that grant.
          if (answer !== 'busy' && this.#hasEnded() && isWaiting) this.locking.inBackground(this.release(0));
          resolve(answer);
        }, reject);
    });
  }

  /**
   * Ends it wherever it stands. A claim that was not answered is made void first: done the other way round it could arrive
   * between the two.
   */
  async release(keepFor: number): Promise<ReleaseOutcome> {
    this.#isOver = true;
    this.#wake?.();
    const { leases } = this.locking.database;
    try {
      if (this.#openClaim !== undefined) await leases.voidClaim(this.name, this.#openClaim);
      this.#openClaim = undefined;
      return (await leases.release(this.name, this.holder, keepFor)) ? 'released' : 'lost';
    } catch {
      return 'unknown';
    }
  }

  async #ask(request: AcquireRequest, tellWaiting: () => void): Promise<Grant | 'busy'> {
    const { clock, database } = this.locking;
    const waitUntil = clock.now() + request.wait;
    for (let pause = FIRST_PAUSE; ;) {
      const sentAt = clock.now();
      const seen = await database.leases.look(this.name);
      // A claim that was not answered has arrived or never will, now that the version is another.
      if (seen?.version !== this.#openClaim) this.#openClaim = undefined;
      if (this.#hasEnded()) return 'busy';
      if (!seen) {
        await database.createRow(this.name);
        continue;
      }
      if (seen.remaining <= 0) {
        const grant = await this.#claim(request, seen.version);
        if (grant) return grant;
        // Somebody was quicker: the next look says for how long.
        continue;
      }
      if (seen.holder === this.holder) {
        // Ours since a claim whose answer was lost.
        return this.#grant(request, seen.version, sentAt, seen.remaining);
      }
      if (request.wait <= 0) return 'busy';
      tellWaiting();
      const lastLook = waitUntil - LAST_LOOK - clock.now();
      const jittered = pause * (0.5 + this.locking.random.fraction() / 2);
      await this.#pause(Math.min(jittered, seen.remaining, lastLook > 0 ? lastLook : Infinity), request.signal);
      if (this.#hasEnded()) return 'busy';
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  }

  async #claim(request: AcquireRequest, seen: bigint): Promise<Grant | 'busy' | undefined> {
    const { clock, database } = this.locking;
    const { name, holder } = this;
    const sentAt = clock.now();
    this.#openClaim = seen;
    const duration = Math.max(request.lease, request.minHold);
    const version = await database.leases.claim({ name, holder, version: seen }, duration).catch((error: unknown) => {
      if (database.isBusy(error)) return undefined;
      throw error;
    });
    if (this.#isOver) return 'busy';
    this.#openClaim = undefined;
    if (version === undefined) return undefined;
    if (request.minHold > 0) this.#keepUntil = clock.now() + request.minHold;
    return this.#grant(request, version, sentAt, request.lease);
  }

  #grant({ key, mode, lease }: AcquireRequest, version: bigint, sentAt: number, remaining: number): Grant {
    const until = validUntil(sentAt, Math.min(lease, remaining));
    return { key, holder: this.holder, mode, fencingToken: version, validUntil: until, lease };
  }

  #pause(delay: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.locking;
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = clock.setTimer(() => this.#wake?.(), Math.max(1, delay));
      this.#wake = () => {
        this.#wake = undefined;
        clock.clearTimer(timer);
        resolve();
      };
    });
  }

  // A method, because the answer changes while something is awaited.
  #hasEnded(): boolean {
    return this.#isOver || this.#hasLeft;
  }
}
