import type { HeldLock, LockInfo, WaitingLock } from '../../api/lock-info.js';
import type { LockManager } from '../../core/lock-manager.js';

/** What operators need: who holds what, and a way to free it. Nothing of it is reachable from outside by itself. */
export class LockAdmin {
  constructor(private readonly manager: LockManager) {}

  /**
   * What the backend knows of a key, or `null` when it is free.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError where the provider cannot tell.
   */
  inspect(key: string, provider?: string): Promise<LockInfo | null> {
    return this.manager.inspect(key, provider);
  }

  /**
   * Frees a key. A lock that is held is lost, and its signal aborts as soon as its process notices.
   * Resolves to whether the key was held or retained (`minHold`).
   *
   * @throws LockConfigError where the provider cannot do it.
   */
  forceRelease(key: string, provider?: string): Promise<boolean> {
    return this.manager.forceRelease(key, provider);
  }

  /** The locks that this process holds. */
  held(): HeldLock[] {
    return this.manager.held();
  }

  /** The locks that this process waits for. */
  waiting(): WaitingLock[] {
    return this.manager.waiting();
  }
}
