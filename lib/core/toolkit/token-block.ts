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
