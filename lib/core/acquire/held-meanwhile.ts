import type { Lock } from '../../api/lock.js';
import type { Caller } from './caller.js';

/** A key that the owner of a caller holds. */
interface HeldKey extends Pick<Caller, 'terms' | 'isValid' | 'subject'> {
  readonly key: string;
  readonly request: { readonly id: string };
}

/** A lock around a caller. */
export interface OuterLock extends Pick<Lock, 'isHeld' | 'provider'> {
  readonly isOpen: boolean;
  readonly holds: readonly HeldKey[];
}

/** The locks of a caller's owner while the caller waits. */
export interface HeldMeanwhile {
  /** The locks around the caller. As long as one of them is held, a drain waits for it instead of sending it away. */
  readonly outer: readonly OuterLock[];
  /** The holder of the key in its own async context, which it has not in hand: it may wait for itself. */
  readonly around: HeldKey | undefined;
  /** The keys that were acquired so far for the same lock. */
  readonly acquired: readonly HeldKey[];
}

/** The keys that the owner of a caller holds at this provider beside `key`, by the ids of their grants: without limited ones, for which nobody waits alone. */
export function grantsOf(
  meanwhile: HeldMeanwhile | undefined,
  provider: string,
  key: string,
  now: number,
): ReadonlyMap<string, string> {
  const grants = new Map<string, string>();
  if (meanwhile === undefined) return grants;
  const { outer, acquired } = meanwhile;
  const around = outer.flatMap((lock) => (lock.isOpen && lock.provider === provider ? lock.holds : []));
  for (const hold of [...acquired, ...around]) {
    if (hold.key === key || hold.terms.limited !== undefined || !hold.isValid(now)) continue;
    grants.set(hold.request.id, hold.key);
  }
  return grants;
}
