const DRIFT = 0.01;

/**
 * Until when a lease of `lease` ms is surely ours, if the command that the backend acknowledged was sent at `sentAt`.
 *
 * Counted from the sending, since the backend may have started the lease at any moment after it (measured: a 100 ms
 * key of Redis lived as little as 99.99 ms counted from the reply). The margin of 1 % + 2 ms for clocks that run at
 * different speeds is that of the Redlock algorithm (redis.io, "Distributed Locks with Redis").
 */
export function validUntil(sentAt: number, lease: number): number {
  return sentAt + lease - (lease * DRIFT + 2);
}

/**
 * Until when a key stays retained that was granted at `grantedAt` with a `minHold` of so many ms. The clock of a holder may run faster than the
 * server's, so what has passed on it counts 1 % less.
 */
export function retainedUntil(grantedAt: number, minHold: number, now: number): number {
  return grantedAt + minHold + (now - grantedAt) * DRIFT;
}
