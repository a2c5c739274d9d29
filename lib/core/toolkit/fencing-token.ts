import type { Grant } from '../../api/lock-provider.js';
import type { LockMode } from '../../api/lock-mode.js';

/**
 * The fencing token of a grant to so many callers, one after the other, if `last` is the last token of their block: that of the first caller.
 *
 * A limited lock has none, because a resource that compares tokens would refuse all holders but the latest.
 */
export function firstToken(mode: LockMode, last: bigint, callers = 1): Grant['fencingToken'] {
  return mode === 'limited' ? null : last - BigInt(callers - 1);
}

/**
 * When a token was given that is the time in µs, unless the last one was not below that; `null` if it is in the future, because
 * then it was counted and not read from the clock.
 *
 * @param now the time of the server, in ms since 1970
 */
export function timeOfToken(token: bigint, now: number): Date | null {
  const time = Number(token / 1000n);
  return time <= now ? new Date(time) : null;
}
