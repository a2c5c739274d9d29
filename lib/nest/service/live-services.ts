import type { LockService } from './lock.service.js';

/** The lock services of the applications that run in this process. */
export const liveServices = new Set<LockService>();

/** Those of applications that have not booted yet. Nest does not report that a boot has failed, so some of them never will. */
export const bootingServices = new Set<LockService>();

/** The service, if there is exactly one: with several, a guess could lock in the wrong application. */
export function onlyLiveService(): LockService | undefined {
  const candidates = liveServices.size > 0 ? liveServices : bootingServices;
  const [first] = candidates;
  return candidates.size === 1 ? first : undefined;
}
