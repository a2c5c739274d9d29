import type { LockService } from './lock.service.js';

const live = new Set<LockService>();

/** The lock services of the applications that run in this process. */
export const liveServices = {
  add(service: LockService): void {
    live.add(service);
  },
  remove(service: LockService): void {
    live.delete(service);
  },
  has(service: LockService | undefined): boolean {
    return service !== undefined && live.has(service);
  },
  get count(): number {
    return live.size;
  },
  /** The service, if there is exactly one: with several, guessing could lock in the wrong application. */
  get only(): LockService | undefined {
    const [first] = live;
    return live.size === 1 ? first : undefined;
  },
};
