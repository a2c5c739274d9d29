import type { AcquireRequest, ReleaseOptions } from '../../api/lock-provider.js';

/** How a lock is released that no task has used. */
export const UNUSED: ReleaseOptions = { keepFor: 0, failed: true };

/** A request that never waits, by which a member is asked whether it answers. */
export function probeFor(key: string, id: string, lease: number, signal: AbortSignal): AcquireRequest {
  return {
    key,
    id,
    mode: 'exclusive',
    lease,
    minHold: 0,
    otherKeysHeld: 0,
    wait: 0,
    since: 0,
    callers: 1,
    signal,
    waits: () => undefined,
    lost: () => undefined,
  };
}
