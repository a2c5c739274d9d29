import type { Grant } from '../../api/lock-provider.js';
import { validUntil } from '../toolkit/validity.js';

// A renewal that was not answered is sent again after a tenth of the lease, at most a second: a backend that restarts within the lease is
// found in time, and one that is down is not stormed.
const RETRY_FRACTION = 0.1;
const RETRY_AT_MOST = 1_000;
// Leases that are due within half of that are renewed with those that are due now. Each look goes over all: of 10 000 that were taken one
// after the other, it would otherwise go over all for each few.
const BATCH_WINDOW = 0.5;

/**
 * The lease of what the backend has granted: until when the lock is surely ours, how long the next renewals are, and when the next one is due.
 * All moments are on the monotonic clock.
 *
 * Renewals may overlap, and their answers may be lost, late or in another order. A shorter lease may be in force from the moment it is sent, so
 * it counts from then on, and acknowledgements of renewals before it are ignored, as are those of renewals before one that was acknowledged.
 */
export class HeldLease {
  #validUntil: number;
  #length: number;
  #longest: number;
  #lengthSent: number;
  #renewAt: number;
  #renewals = 0;
  /** The acknowledgements of renewals before this one are ignored. */
  #firstThatCounts = 0;
  #suspensions: number;

  /** @param suspensions how many suspensions of the machine were known when the request was sent */
  constructor({ lease, validUntil: until }: Pick<Grant, 'lease' | 'validUntil'>, suspensions: number) {
    this.#validUntil = until;
    this.#length = lease;
    this.#longest = lease;
    this.#lengthSent = lease;
    this.#suspensions = suspensions;
    this.#renewAt = this.#nextRenewal();
  }

  get validUntil(): number {
    return this.#validUntil;
  }

  /** Of the next renewals, in ms. */
  get length(): number {
    return this.#length;
  }

  /** The longest that was sent, in ms: for so long the backend may keep the lock, whatever was answered. */
  get longest(): number {
    return this.#longest;
  }

  /** When the watchdog renews it next. */
  get renewAt(): number {
    return this.#renewAt;
  }

  /** Whether the watchdog renews it with what is due at `now`. */
  isDue(now: number): boolean {
    return this.#renewAt - this.#retryAfter * BATCH_WINDOW <= now;
  }

  /** Whether the machine was not suspended since the last acknowledged command was sent, if it was `suspensions` times so far. */
  isVerified(suspensions: number): boolean {
    return suspensions === this.#suspensions;
  }

  /** From now on it is renewed to `length` ms. */
  change(length: number): void {
    this.#length = length;
  }

  /** The next renewal is due now. */
  hurry(): void {
    this.#renewAt = -Infinity;
  }

  /** A renewal is sent at `now`. Gives its number, for {@link acknowledged}. If it is not answered, the next one follows soon. */
  beginRenewal(now: number): number {
    this.#renewals += 1;
    if (this.#length < this.#lengthSent) {
      this.#validUntil = Math.min(this.#validUntil, validUntil(now, this.#length));
      this.#firstThatCounts = this.#renewals;
    }
    this.#lengthSent = this.#length;
    this.#longest = Math.max(this.#longest, this.#length);
    this.#renewAt = now + this.#retryAfter;
    return this.#renewals;
  }

  /** The renewal of this number, sent after `suspensions` suspensions of the machine, was acknowledged. */
  acknowledged(renewal: number, until: number, suspensions: number): void {
    if (renewal < this.#firstThatCounts) return;
    this.#firstThatCounts = renewal;
    this.#validUntil = until;
    this.#suspensions = suspensions;
    // Not before the renewal would be sent again: a provider that has gained next to nothing would be asked again and again.
    this.#renewAt = Math.max(this.#renewAt, this.#nextRenewal());
  }

  // After a third of the lease: two renewals may fail before the deadline (the cadence of Redisson and DistributedLock). Counted back from the
  // deadline, which was computed from the time when the acknowledged command was sent.
  #nextRenewal(): number {
    return this.#validUntil - (this.#length * 2) / 3;
  }

  get #retryAfter(): number {
    return Math.min(this.#length * RETRY_FRACTION, RETRY_AT_MOST);
  }
}
