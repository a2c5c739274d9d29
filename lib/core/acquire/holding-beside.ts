import type { LockMode } from '../../api/lock-mode.js';
import type { ProviderCore } from '../provider-core.js';
import type { KnownHolding } from './holder-report.js';
import type { KeyRequest, RequestCaller } from './key-request.js';
import { excludes } from './re-entry.js';

/**
 * The holder that keeps a caller with this mode out, if it is known: the one of this process, or as the backend has seen it for the request. The
 * backend counts those that hold together, because it sees all of them.
 *
 * @param held what this process holds of the key
 * @param request the one that asks for the caller
 */
export function holdingBeside(
  mode: LockMode,
  held: readonly KeyRequest[],
  request: KeyRequest | undefined,
  { clock, instance }: Pick<ProviderCore, 'clock' | 'instance'>,
): KnownHolding | null {
  const now = clock.now();
  let holder: RequestCaller | undefined;
  let holders = 0;
  for (const each of held) {
    if (!excludes(each.mode, mode) || !each.isValid(now)) continue;
    holders += each.holderCount;
    if (each.mode === 'exclusive') holder = each.firstHolder;
  }
  const isHere = holders > 0;
  if (holder !== undefined) {
    const { grantedAt, method } = holder;
    return { holders, instance, since: grantedAt, seenAt: now, method, isHere };
  }
  const seen = request?.heldBy ?? null;
  if (seen !== null) return { ...seen, method: null, isHere };
  if (!isHere) return null;
  return { holders, instance: holders > 1 ? null : instance, since: null, seenAt: now, method: null, isHere };
}
