import type { LockService } from './lock.service.js';

/** The lock services of the applications that run in this process. */
export const liveServices = new Set<LockService>();

/** The service, if there is exactly one: with several, a guess could lock in the wrong application. */
export function onlyLiveService(): LockService | undefined {
  const [first] = liveServices;
  return liveServices.size === 1 ? first : undefined;
}
