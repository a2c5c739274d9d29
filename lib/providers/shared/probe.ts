import type { AcquireRequest, ReleaseOptions } from '../../api/lock-provider.js';

/** Options for releasing a lock that no task has used. */
export const UNUSED: ReleaseOptions = { keepFor: 0, failed: true };

/** A request that never waits, to check whether a member responds. */
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
