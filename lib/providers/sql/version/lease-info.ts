import type { ListedLock, LockInfo } from '../../../api/lock-info.js';
import { instancesOf, timeOfToken } from '../../../core/toolkit/listing.js';
import { grantedOf, type Lease, type LeaseHold, smallestLimit, usedBy } from './lease.js';

/** The state of a key, for an operator; `null` for one that is free. */
export function infoOf(key: string, lease: Lease): LockInfo | null {
  const { serverTime } = lease;
  const holds = grantedOf(lease.holds);
  const latest = latestOf(holds);
  if (!latest) return null;
  const holders = holds.filter(isLive).length;
  return {
    key,
    state: holders > 0 ? 'held' : 'retained',
    ...(latest.limited ? { mode: 'limited', limit: smallestLimit(holds), used: usedBy(holds) } : { mode: 'exclusive' }),
    holders,
    waiters: null,
    expiresIn: Math.max(...holds.map(({ expires }) => expires - serverTime)) / 1000,
    fencingToken: latest.limited ? null : latest.token,
  };
}

/** A key in the list of all, with the ids of its instances. */
export function listedLock(key: string, lease: Lease): ListedLock | null {
  const holds = grantedOf(lease.holds);
  const info = infoOf(key, lease);
  const token = latestOf(holds)?.token;
  if (!info || token === undefined) return null;
  const instances = instancesOf(holds.flatMap(({ holder }) => holder ?? []));
  return { ...info, instances, since: timeOfToken(token, lease.serverTime / 1000) };
}

/** The holder that came last; of what is only retained, the last one that had it. */
function latestOf(holds: readonly LeaseHold[]): LeaseHold | undefined {
  return holds.filter(isLive).at(-1) ?? holds.at(-1);
}

function isLive({ holder }: LeaseHold): boolean {
  return holder !== undefined;
}
