import type { Clock } from '../../api/clock.js';
import type { LockError } from '../../api/errors.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type { AcquireRequest } from '../../api/lock-provider.js';
import type { HeldGrant } from '../hold/held-grant.js';
import type { Caller } from './caller.js';

/** The most callers that one grant serves one after the other. */
const COHORT = 64;

/** Where a request was made. */
export interface RequestQueue {
  /** It waits at the backend: for the lock, or for what `instead` names. */
  onQueued(request: KeyRequest, instead: LockError | undefined): void;
}

/**
 * What this process asks a backend for, on behalf of the oldest caller of a queue. It outlives that caller if it fits the next.
 *
 * - `asking`: its ask is in flight, and the backend has neither answered nor queued it.
 * - `queued`: it waits at the backend.
 * - `pausing`: it was not sent yet, or its last ask was not answered. It will be sent.
 * - `over`: it was granted, refused or given up.
 */
export class KeyRequest implements AcquireRequest {
  readonly key: string;
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly lease: number;
  readonly renew: boolean;
  readonly minHold: number;
  readonly otherKeysHeld: number;
  /** The backend's own. */
  state: unknown;
  phase: 'asking' | 'queued' | 'pausing' | 'over' = 'pausing';
  /** The caller that it asks for now. It has none when it is over: its grant and its release would keep what is around that. */
  oldest: Caller | undefined;
  /** When it was last sent, on the monotonic clock. */
  askedAt = -Infinity;
  /** The caller that was the oldest then. */
  askedFor: Caller | undefined;
  /** How many suspensions of the machine were known then. */
  suspensions = 0;
  /** How often it was sent without an answer. */
  rounds = 0;
  /** Something of it may have reached the server. */
  sent = false;
  /** Why its last ask was not answered, or what it waits for instead of the lock. */
  failure: unknown;
  /** What it was granted. */
  held: HeldGrant | undefined;
  /** The server took the lock away before its grant was used. */
  isRevoked = false;
  /** The one caller that it serves, if that repeats it by itself. */
  readonly #alone: Caller | undefined;
  #controller: AbortController | undefined;
  #isAborted = false;

  constructor(
    oldest: Caller,
    readonly id: string,
    private readonly queue: RequestQueue,
    private readonly clock: Clock,
  ) {
    const { subject, timing, otherKeysHeld, limited } = oldest.terms;
    this.oldest = oldest;
    if (oldest.isAlone) this.#alone = oldest;
    this.key = subject.key;
    this.mode = subject.mode;
    this.limited = limited;
    this.lease = timing.lease;
    this.renew = timing.renew;
    this.minHold = timing.minHold;
    this.otherKeysHeld = otherKeysHeld;
  }

  get since(): number {
    return this.oldest?.terms.since ?? this.clock.now();
  }

  get callers(): number {
    const { oldest } = this;
    let count = oldest?.terms.callers ?? 1;
    for (let next = oldest?.next; next !== undefined && count < COHORT && this.fits(next); next = next.next) count += 1;
    return count;
  }

  get wait(): number {
    const { oldest, clock } = this;
    return oldest === undefined || oldest.isLate ? 0 : Math.max(0, oldest.deadline - clock.now());
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#isAborted) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  /** It serves one caller alone, which repeats it by itself. */
  get isAlone(): boolean {
    return this.#alone !== undefined;
  }

  /** Whether a grant of it serves this caller. */
  fits(caller: Caller): boolean {
    if (caller.isAlone || this.#alone) return caller === this.#alone;
    const { subject, timing, limited } = caller.terms;
    return (
      subject.mode === this.mode &&
      timing.lease === this.lease &&
      timing.renew === this.renew &&
      timing.minHold === this.minHold &&
      limited?.limit === this.limited?.limit &&
      limited?.weight === this.limited?.weight
    );
  }

  waits(instead?: LockError): void {
    this.queue.onQueued(this, instead);
  }

  lost(cause?: unknown): void {
    if (this.held) this.held.lose('revoked', cause);
    else this.isRevoked = true;
  }

  /** Nobody is left to serve. */
  abort(): void {
    this.#isAborted = true;
    this.#controller?.abort();
  }
}
