import type { Grant } from '../../api/lock-provider.js';
import type { LockMode } from '../../api/lock-mode.js';

/**
 * The first of a block of consecutive fencing tokens, one for each of the `callers` that a grant serves. `last` is the
 * block's last token.
 *
 * Limited locks don't have tokens, because a resource that compares tokens would reject all holders except the latest.
 */
export function firstToken(mode: LockMode, last: bigint, callers = 1): Grant['fencingToken'] {
  return mode === 'limited' ? null : last - BigInt(callers - 1);
}

/**
 * When a token was issued. A token is the server's time in µs, or the previous token plus one if the clock has not
 * advanced past it. `null` if the token is in the future, which means it was incremented rather than read from the
 * clock.
 *
 * @param now the server's time, in ms since 1970
 */
export function timeOfToken(token: bigint, now: number): Date | null {
  const time = Number(token / 1000n);
  return time <= now ? new Date(time) : null;
}
