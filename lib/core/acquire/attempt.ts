import type { LockEvent } from '../../api/lock-events.js';
import type { LockOptions } from '../../api/lock-options.js';
import type { Clock } from '../../api/clock.js';
import type { Wish } from './acquisition.js';
import type { AcquireRequest } from '../../api/lock-provider.js';

/** The terms on which a lock is asked for; all times in ms. */
export interface LeaseTerms {
  readonly lease: number;
  readonly renew: boolean;
  readonly minHold: number;
  readonly options: Readonly<LockOptions>;
}

/**
 * One attempt to acquire one key, under one holder id. The same attempt may ask several times; once a release of it
 * was sent it is dead, and whatever is granted to it later is given back.
 */
export class Attempt implements AcquireRequest {
  readonly subject: LockEvent;
  readonly deadline: number;
  readonly key: string;
  readonly mode: LockEvent['mode'];
  readonly lease: number;
  readonly renew: boolean;
  readonly minHold: number;
  readonly options: Readonly<LockOptions>;
  readonly depth: number;
  /** The backend took the lock away before its grant has reached the engine. */
  revoked = false;
  /** Since when an ask is out that the backend has neither answered nor acknowledged by queueing us. */
  unansweredSince: number | undefined;
  /** An ask for it may have reached the backend, so something of it may be left there. */
  mayBeKnown = false;
  /** How many suspensions of the machine were known when it was last asked for. */
  suspensions = 0;
  #clock: Clock;
  #controller: AbortController | undefined;
  #departed = false;

  constructor(
    readonly holder: string,
    { subject, terms, deadline, depth }: Wish,
    clock: Clock,
  ) {
    this.key = subject.key;
    this.mode = subject.mode;
    this.lease = terms.lease;
    this.renew = terms.renew;
    this.minHold = terms.minHold;
    this.options = terms.options;
    this.subject = subject;
    this.deadline = deadline;
    this.depth = depth;
    this.#clock = clock;
  }

  get wait(): number {
    return Math.max(0, this.deadline - this.#clock.now());
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#departed) this.#controller.abort();
    }
    return this.#controller.signal;
  }

  /** The caller has left. */
  depart(): void {
    this.#departed = true;
    this.#controller?.abort();
  }
}
