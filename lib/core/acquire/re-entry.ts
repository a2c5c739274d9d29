import { LockConfigError, LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LimitShare } from '../../api/lock-options.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Hold } from '../hold/hold.js';
import { nameOf } from '../events/subject.js';

/** What a caller holds already, as far as it matters for one more key. */
export interface HeldAlready {
  /** The hold of the same key, to be entered once more. */
  readonly same: Hold | undefined;
  /** A key that is held and sorts after the wanted one: two callers that nest in opposite order wait for each other. */
  readonly later: string | undefined;
  /** How many keys of the provider are held. */
  readonly keys: number;
}

/**
 * Looks for `key` among the `outer` locks of the caller, innermost first. Work that outlives its lock, such as a timer, takes the
 * key like any other caller.
 */
export function heldAlready(key: string, provider: string, outer: readonly GrantedLock[]): HeldAlready {
  let later: string | undefined;
  const holds = new Set<Hold>();
  for (const lock of outer) {
    if (lock.provider !== provider) continue;
    for (const hold of lock.holds) {
      if (hold.key === key) return { same: hold, later, keys: 0 };
      holds.add(hold);
      if (hold.key > key) later = hold.key;
    }
  }
  return { same: undefined, later, keys: holds.size };
}

/**
 * Enters a hold of the caller's own once more. The outer lease, minHold and maxHold stay.
 *
 * @throws LockLostError when it is lost: the inner task would run unprotected.
 * @throws LockDeadlockError when re-entry is switched off, or when it wants more than it holds. LockConfigError for a smaller limit.
 */
export function enter(
  hold: Hold,
  subject: LockEvent,
  { reentrant, limited }: { readonly reentrant: boolean; readonly limited: LimitShare | undefined },
): Hold {
  const lost = hold.lostError;
  if (lost) throw lost;
  if (!reentrant) {
    throw new LockDeadlockError(
      `${nameOf(subject)} is held by this very task, and reentrant is false: it would wait for itself.`,
      subject,
    );
  }
  const { mode } = hold;
  if (mode !== 'exclusive' && mode !== subject.mode) {
    throw new LockDeadlockError(
      `${nameOf(subject)} is held ${mode} by this very task, which now wants it ${subject.mode} and would wait for itself: use one mode for both, or take it exclusive from the start.`,
      subject,
    );
  }
  const held = hold.limited;
  if (limited && held && limited.limit < held.limit) {
    throw new LockConfigError(
      `${nameOf(subject)} is held under limit ${held.limit} by this very task, which now wants limit ${limited.limit}: use the same limit everywhere.`,
      subject,
    );
  }
  if (limited && held && limited.weight > held.weight) {
    throw new LockDeadlockError(
      `${nameOf(subject)} is held with weight ${held.weight} by this very task, which now wants ${limited.weight} and would wait for itself: take the larger weight from the start.`,
      subject,
    );
  }
  hold.entries += 1;
  return hold;
}
