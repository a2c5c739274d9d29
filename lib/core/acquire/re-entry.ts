import { LockConfigError, LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Holder } from '../hold/holder.js';
import { lostError } from '../hold/lost-error.js';
import { nameOf } from '../events/subject.js';

/** What a caller already holds when it acquires another key. */
export interface HeldAlready {
  /** The hold on the same key that the call re-enters. */
  readonly same: Holder | undefined;
  /** A surrounding lock of this key that the call may not re-enter because it wasn't passed explicitly. */
  readonly around: Holder | undefined;
  /** How many of the provider's other keys the caller holds. */
  readonly keys: number;
}

/**
 * Searches the caller's `outer` locks for `key`, innermost first. Work that outlives its lock, such as a timer,
 * acquires the key like any other caller.
 *
 * @param mayEnter whether the caller may re-enter a lock
 */
export function heldAlready(
  key: string,
  provider: string,
  outer: readonly GrantedLock[],
  mayEnter: (lock: GrantedLock) => boolean,
): HeldAlready {
  let around: Holder | undefined;
  const holds = new Set<Holder>();
  for (const lock of outer) {
    if (lock.provider !== provider) continue;
    for (const hold of lock.holds) {
      if (hold.key === key) {
        if (mayEnter(lock)) return { same: hold, around: undefined, keys: 0 };
        around ??= hold;
        continue;
      }
      holds.add(hold);
    }
  }
  return { same: undefined, around, keys: holds.size };
}

/** Whether holders in these modes exclude each other. Limited holders don't: the backend enforces their limit. */
export function excludes(one: LockMode, other: LockMode): boolean {
  return one === 'exclusive' || one !== other;
}

/**
 * Re-enters one of the caller's holds. The outer `lease`, `minHold`, and `maxHold` stay in force.
 *
 * @throws LockLostError when the hold is lost, because the inner task would run unprotected.
 * @throws LockDeadlockError when the call requests more than it holds.
 * @throws LockConfigError when the call's limit is below the outer one.
 */
export function reEnter(hold: Holder, subject: LockEvent, limited: LimitShare | undefined, now: number): Holder {
  hold.expire(now);
  // A lock that was passed explicitly may have been released while the call waited for another key.
  if (!hold.isHolding) throw hold.lostError ?? lostError(hold.subject, 'released');
  const { mode, limited: held } = hold.terms;
  if (mode !== 'exclusive' && mode !== subject.mode) {
    throw new LockDeadlockError(
      `${nameOf(subject)} is already held in ${mode} mode by this call, so acquiring it in ${subject.mode} mode would deadlock. Use the same mode for both, or start in exclusive mode.`,
      subject,
    );
  }
  if (limited && held && limited.limit < held.limit) {
    throw new LockConfigError(
      `${nameOf(subject)} is already held by this call with limit ${held.limit}, so it cannot be re-entered with limit ${limited.limit}. Use the same limit everywhere.`,
      subject,
    );
  }
  if (limited && held && limited.weight > held.weight) {
    throw new LockDeadlockError(
      `${nameOf(subject)} is already held by this call with weight ${held.weight}, so acquiring weight ${limited.weight} would deadlock. Acquire the larger weight from the start.`,
      subject,
    );
  }
  hold.reEnter();
  return hold;
}
