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
