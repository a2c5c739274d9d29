/**
 * Until when a lease of `lease` ms is surely ours, if the command that the backend acknowledged was sent at `sentAt`.
 *
 * Counted from the sending, since the backend may have started the lease at any moment after it (measured: a 100 ms
 * key of Redis lived as little as 99.99 ms counted from the reply). The margin of 1 % + 2 ms for clocks that run at
 * different speeds is that of the Redlock algorithm (redis.io, "Distributed Locks with Redis").
 */
export function validUntil(sentAt: number, lease: number): number {
  return sentAt + lease - (lease * 0.01 + 2);
}

/**
 * Until when a lease that is renewed again and again is surely ours.
 *
 * Renewals may overlap, and their answers may be lost or late. A shorter lease may be in force from the moment it is sent, so it
 * counts from then on, and acknowledgements of earlier renewals are ignored.
 */
export class LeaseValidity {
  #sent = 0;
  #lastShortened = 0;
  #lease: number;
  #longest: number;
  #until: number;

  /** @param until on the monotonic clock */
  constructor(lease: number, until: number) {
    this.#lease = lease;
    this.#longest = lease;
    this.#until = until;
  }

  get until(): number {
    return this.#until;
  }

  /** The longest lease that was sent, in ms: for so long the backend may keep the lock, whatever was answered. */
  get longest(): number {
    return this.#longest;
  }

  /** A renewal to `lease` ms is about to be sent. Answers its number, for {@link acknowledged}. */
  renewing(lease: number, now: number): number {
    this.#sent += 1;
    if (lease < this.#lease) {
      this.#until = Math.min(this.#until, validUntil(now, lease));
      this.#lastShortened = this.#sent;
    }
    this.#lease = lease;
    this.#longest = Math.max(this.#longest, lease);
    return this.#sent;
  }

  /** The renewal of this number was acknowledged. Answers whether that counts. */
  acknowledged(renewal: number, until: number): boolean {
    if (renewal < this.#lastShortened) return false;
    this.#until = until;
    return true;
  }
}
