import {
  type AcquireRequest,
  type Grant,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../../api/lock-provider.js';
import { validUntil } from '../../../core/toolkit/validity.js';
import { failureOf } from '../failure.js';
import type { LockAttempt } from '../sql-lock-provider.js';
import type { VersionLocks } from './version-lock-provider.js';

// How long before a busy row is looked at again, in ms: doubled from the first to the longest, half of it at random so that
// processes do not march in step. One look is one indexed read.
const FIRST_PAUSE = 10;
const LONGEST_PAUSE = 200;
// How long before the end of the wait the last look is made, in ms.
const LAST_LOOK = 50;
const NOW: ReleaseManner = { keepFor: 0, failed: true };

/** One attempt to hold one lease, from its first ask to its release. */
export class VersionAttempt implements LockAttempt {
  #isOver = false;
  /** Its caller has left. Not told by `request.wait`: that has run down to 0 by then, as for an attempt that never waits. */
  #hasLeft = false;
  /** The version that a claim compares with which was sent and not answered: it may arrive at any time. */
  #openClaim: bigint | undefined;
  #keepUntil = -Infinity;
  #wake: (() => void) | undefined;

  constructor(
    private readonly locks: VersionLocks,
    private readonly name: string,
    private readonly holder: string,
  ) {}

  get mayArrive(): boolean {
    return this.#openClaim !== undefined;
  }

  renew({ fencingToken }: Grant, lease: number): Promise<RenewOutcome> {
    const { renewals, clock } = this.locks;
    const held = { name: this.name, holder: this.holder, version: fencingToken ?? 0n };
    // A crash must not cut `minHold` short.
    return renewals.add(held, lease, Math.max(lease, this.#keepUntil - clock.now()));
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
        if (this.#openClaim !== undefined) this.locks.inBackground(this.release(NOW));
        if (isWaiting) resolve('busy');
        this.#wake?.();
      };
      const reportWaiting = () => {
        if (isWaiting) return;
        isWaiting = true;
        this.locks.context.emit({ type: 'waiting', holder: this.holder });
      };
      if (signal.aborted) leave();
      signal.addEventListener('abort', leave, { once: true });
      this.#ask(request, reportWaiting)
        .finally(() => {
          signal.removeEventListener('abort', leave);
        })
        .then((answer) => {
          // Granted while it was leaving, after it had said that it is busy: nobody knows of that grant.
          if (answer !== 'busy' && this.#hasEnded() && isWaiting) this.locks.inBackground(this.release(NOW));
          resolve(answer);
        }, reject);
    });
  }

  /**
   * Ends it wherever it stands. A claim that was not answered is made void first: done the other way round it could arrive
   * between the two.
   */
  async release({ keepFor }: ReleaseManner): Promise<ReleaseOutcome> {
    this.#isOver = true;
    this.#wake?.();
    const { leases } = this.locks;
    try {
      if (this.#openClaim !== undefined) await leases.voidClaim(this.name, this.#openClaim);
      this.#openClaim = undefined;
      return (await leases.release(this.name, this.holder, keepFor)) ? 'released' : 'lost';
    } catch {
      return 'unknown';
    }
  }

  async #ask(request: AcquireRequest, reportWaiting: () => void): Promise<Grant | 'busy'> {
    const { clock, leases } = this.locks;
    const waitUntil = clock.now() + request.wait;
    for (let pause = FIRST_PAUSE; ;) {
      const sentAt = clock.now();
      const seen = await leases.look(this.name);
      // A claim that was not answered has arrived or never will, now that the version is another.
      if (seen?.version !== this.#openClaim) this.#openClaim = undefined;
      if (this.#hasEnded()) return 'busy';
      if (!seen) {
        await leases.createRow(this.name);
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
      reportWaiting();
      const lastLook = waitUntil - LAST_LOOK - clock.now();
      const jittered = pause * (0.5 + this.locks.context.random.fraction() / 2);
      await this.#pause(Math.min(jittered, seen.remaining, lastLook > 0 ? lastLook : Infinity), request.signal);
      if (this.#hasEnded()) return 'busy';
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  }

  async #claim(request: AcquireRequest, seen: bigint): Promise<Grant | 'busy' | undefined> {
    const { clock, leases } = this.locks;
    const { name, holder } = this;
    const sentAt = clock.now();
    this.#openClaim = seen;
    const duration = Math.max(request.lease, request.minHold);
    const version = await leases.claim({ name, holder, version: seen }, duration).catch((error: unknown) => {
      if (['busy', 'rolled-back'].includes(failureOf(error))) return undefined;
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
    const { clock } = this.locks;
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
