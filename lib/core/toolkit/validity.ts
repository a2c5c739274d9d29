const DRIFT = 0.01;

/**
 * The time until which this process definitely holds a lease of `lease` ms, if it sent the acknowledged command at
 * `sentAt`.
 *
 * The lease is counted from the time of sending, because the backend may have started it at any point after that
 * (in a test, a 100 ms Redis key lived for as little as 99.99 ms after the reply). The margin for clocks that
 * run at different rates, 1 % plus 2 ms, comes from the Redlock algorithm (redis.io, "Distributed Locks with Redis").
 */
export function validUntil(sentAt: number, lease: number): number {
  return sentAt + lease - (lease * DRIFT + 2);
}

/**
 * The time until which a key granted at `grantedAt` stays retained (`minHold`). The holder's clock may run faster than
 * the server's, so time measured on it is reduced by 1 %.
 */
export function retainedUntil(grantedAt: number, minHold: number, now: number): number {
  return grantedAt + minHold + (now - grantedAt) * DRIFT;
}

/** Rounds up to whole milliseconds for a server: it may safely keep a lock longer than we rely on it. */
export function wholeMs(duration: number): string {
  return String(Math.ceil(duration));
}
