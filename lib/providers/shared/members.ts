import type { LockCapabilities, Member } from '../../api/lock-provider.js';
import { shown } from '../../api/printable.js';
import { option, type Option, refuse } from '../../core/toolkit/options.js';

/**
 * Each member's `commandTimeout`. Undefined if a member doesn't declare one; such a member might not reconnect
 * automatically.
 */
export function timeoutsOf(members: readonly Member[]): readonly number[] | undefined {
  const timeouts = members.flatMap(({ commandTimeout }) => commandTimeout ?? []);
  return timeouts.length === members.length ? timeouts : undefined;
}

/** The capabilities that all members have. A composite has no others, because it passes each lock on to its members. */
export function commonCapabilities(members: readonly Member[]) {
  const all = members.map(({ capabilities }) => capabilities);
  const allCan = (capability: 'shared' | 'fair' | 'minHold' | 'forceRelease' | 'fencing') =>
    all.every((each) => each[capability]);
  return {
    shared: allCan('shared'),
    fair: allCan('fair'),
    fencing: allCan('fencing'),
    lease: all.every(({ lease }) => lease === 'per-lock') ? 'per-lock' : 'session',
    maxLease: Math.min(...all.map(({ maxLease = Infinity }) => maxLease)),
    minHold: allCan('minHold'),
    forceRelease: allCan('forceRelease'),
  } satisfies LockCapabilities;
}

/** A composite provider's `providers` option: at least two distinct names. */
export function namesOfMembers(): Option<readonly string[]> {
  const wanted = "a list of lock provider names, such as ['redis', 'sql']";
  return option<readonly string[]>(wanted, (given, owner, name) => {
    // Reject strings, which have a length and can be iterated: 'ab' would be read as the providers a and b.
    if (!Array.isArray(given)) return undefined;
    const other: unknown = given.find((each) => typeof each !== 'string');
    if (other !== undefined || given.includes(undefined))
      refuse(owner, name, `contains ${shown(other)}, but must be ${wanted}.`);
    if (given.length < 2 || new Set(given).size < given.length)
      refuse(owner, name, `is ${given.join(', ') || 'empty'}, but must name at least two different lock providers.`);
    return given as readonly string[];
  })
    .written()
    .required();
}
