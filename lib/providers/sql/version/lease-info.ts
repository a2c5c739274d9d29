import type { LockInfo } from '../../../api/lock-info.js';
import { timeOfToken } from '../../../core/toolkit/fencing-token.js';
import { instanceIdOf, instancesOf } from '../../../core/toolkit/instance-ids.js';
import type { SeenHolder } from '../../../core/toolkit/seen-holders.js';
import { grantedOf, type Lease, type LeaseHold, smallestLimit, usedBy } from './lease.js';

/** The state of a key, for an operator, with the ids of its instances; `null` for one that is free. */
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
    instances: instancesOf(holds.flatMap(({ holder }) => holder ?? [])),
    since: timeOfToken(latest.token, serverTime / 1000),
  };
}

/** The holder that keeps others out of the row; undefined where it is only retained. */
export function holderIn({ holds, serverTime }: Lease): SeenHolder | undefined {
  const live = grantedOf(holds).filter(isLive);
  const [only] = live;
  if (only?.holder === undefined) return undefined;
  if (only.limited) return { holders: live.length, instance: null, heldFor: null };
  const since = timeOfToken(only.token, serverTime / 1000);
  return { holders: 1, instance: instanceIdOf(only.holder), heldFor: since && serverTime / 1000 - since.getTime() };
}

/** The holder that came last; of what is only retained, the last one that had it. */
function latestOf(holds: readonly LeaseHold[]): LeaseHold | undefined {
  return holds.filter(isLive).at(-1) ?? holds.at(-1);
}

function isLive({ holder }: LeaseHold): boolean {
  return holder !== undefined;
}
