import type { Grant } from '../../api/lock-provider.js';
import { validUntil } from '../toolkit/validity.js';

// An unanswered renewal is retried after a tenth of the lease or one second, whichever is shorter: soon enough to
// survive a backend restart within the lease, but not so often as to flood a backend that is down.
const RETRY_FRACTION = 0.1;
const MAX_RETRY_MS = 1_000;
// A renewal due within half the retry interval is sent early, together with those due now. The watchdog scans all
// leases each time; without batching, it might scan 10,000 to renew just a few.
const BATCH_WINDOW = 0.5;

/**
 * A grant's lease: how long this process definitely holds the lock, when to renew it, and for how long.
 *
 * Renewals can overlap, and their responses can be lost, late, or out of order. A shorter lease counts from when it is
 * sent, although the server keeps the longer one: otherwise, the late response to an earlier renewal would postpone the
 * next one beyond the shorter deadline. Acknowledgments of renewals sent before one that shortened the lease or was
 * acknowledged are ignored.
 */
export class HeldLease {
  #validUntil: number;
  #length: number;
  #longest: number;
  #renewAt: number;
  #renewals = 0;
  /** The first renewal whose acknowledgment counts. */
  #firstThatCounts = 0;
  #suspensions: number;

  /** @param suspensions how many machine suspensions were known when the request was sent */
  constructor({ lease, validUntil: until }: Pick<Grant, 'lease' | 'validUntil'>, suspensions: number) {
    this.#validUntil = until;
    this.#length = lease;
    this.#longest = lease;
    this.#suspensions = suspensions;
    this.#renewAt = this.#nextRenewal();
  }

  get validUntil(): number {
    return this.#validUntil;
  }

  /** The lease length for later renewals, in ms. */
  get length(): number {
    return this.#length;
  }

  /** The longest lease ever sent, in ms. The backend may keep the lock for that long, regardless of its response. */
  get longest(): number {
    return this.#longest;
  }

  /** When the next renewal is due. */
  get renewAt(): number {
    return this.#renewAt;
  }

  /** Whether to renew the lease at `now`, together with other leases. */
  isDue(now: number): boolean {
    return this.#renewAt - this.#retryAfter * BATCH_WINDOW <= now;
  }

  /**
   * Whether the machine has stayed awake since the last acknowledged command was sent. `suspensions`: how many
   * suspensions are known now.
   */
  isVerified(suspensions: number): boolean {
    return suspensions === this.#suspensions;
  }

  /** Makes the next renewal due immediately. */
  renewSoon(): void {
    this.#renewAt = -Infinity;
  }

  /**
   * Notes that a renewal is sent at `now`, and schedules a retry. Returns the number to pass to {@link acknowledged}.
   *
   * @param length the lease length of this and later renewals, in ms
   */
  beginRenewal(now: number, length = this.#length): number {
    this.#renewals += 1;
    if (length < this.#length) {
      this.#validUntil = Math.min(this.#validUntil, validUntil(now, length));
      this.#firstThatCounts = this.#renewals;
    }
    this.#length = length;
    this.#longest = Math.max(this.#longest, length);
    this.#renewAt = now + this.#retryAfter;
    return this.#renewals;
  }

  /** Notes that a renewal was acknowledged. `suspensions`: how many machine suspensions were known when it was sent. */
  acknowledged(renewal: number, until: number, suspensions: number): void {
    if (renewal < this.#firstThatCounts) return;
    this.#firstThatCounts = renewal;
    this.#validUntil = until;
    this.#suspensions = suspensions;
    // Never earlier than the retry; otherwise, a renewal that gained almost nothing would repeat in a tight loop.
    this.#renewAt = Math.max(this.#renewAt, this.#nextRenewal());
  }

  // A lease is renewed after a third of its length, so two renewals may fail before the deadline (as in Redisson and
  // DistributedLock). The time is computed back from the deadline, which counts from when the acknowledged command was
  // sent.
  #nextRenewal(): number {
    return this.#validUntil - (this.#length * 2) / 3;
  }

  get #retryAfter(): number {
    return Math.min(this.#length * RETRY_FRACTION, MAX_RETRY_MS);
  }
}
