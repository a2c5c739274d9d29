import type { LockCapabilities, Member } from '../../api/lock-provider.js';
import { LockConfigError } from '../../api/errors.js';
import type { CombinedProviderOptions } from './combined-options.js';

/** What can be promised of all members together. @throws LockConfigError for members that cannot form this quorum */
export function capabilitiesOf(
  members: ReadonlyMap<string, Member>,
  quorum: CombinedProviderOptions['quorum'],
): LockCapabilities {
  const all = [...members.values()].map(({ capabilities }) => capabilities);
  const isMajority = quorum === 'majority';
  if (isMajority) {
    for (const [name, { capabilities }] of members) {
      if (capabilities.fencing) continue;
      throw new LockConfigError(
        `CombinedProvider: quorum 'majority' cannot count on "${name}", which gives no fencing tokens: an engine that cannot keep a counter may as well lose a lock during a hold (memcached evicts), and then two hold. Switch its "fencing" on if it has that option, or use another engine.`,
      );
    }
  }
  const allCan = (capability: 'shared' | 'fair' | 'minHold' | 'forceRelease') =>
    all.every((capabilities) => capabilities[capability]);
  return {
    shared: allCan('shared'),
    // In order, whoever is first in the first engine is first in all. Rounds have no order.
    fair: !isMajority && allCan('fair'),
    fencing: false,
    lease: all.every(({ lease }) => lease === 'per-lock') ? 'per-lock' : 'session',
    maxLease: Math.min(...all.map(({ maxLease = Infinity }) => maxLease)),
    minHold: allCan('minHold'),
    forceRelease: allCan('forceRelease'),
    // Waiting by rounds costs all engines: one of a process does it for all.
    queue: isMajority || all.some(({ queue }) => queue === 'engine') ? 'engine' : 'native',
  };
}
