import type { HeldLock, ListedLock, ListOptions, LockInfo, WaitingLock } from '../../api/lock-info.js';
import type { LockBackend } from '../../api/lock-provider.js';
import type { BackendClass, LockManager } from '../../core/lock-manager.js';

/** What operators need: which locks are held, and a way to free them. Nothing of it is reachable from outside by itself. */
export class LockAdmin {
  constructor(private readonly manager: LockManager) {}

  /**
   * What the backend knows about a key, or `null` when it is free.
   *
   * @param provider default: the module's default provider
   * @throws LockConfigError where the provider does not know.
   */
  inspect(key: string, provider?: string): Promise<LockInfo | null> {
    return this.manager.inspect(key, provider);
  }

  /**
   * All keys of the namespace that are held or retained, in no order, one after the other as the backend is read. A key that is taken or
   * freed meanwhile may be in it or not. It needs bounded memory, whatever the number of locks.
   *
   * @example `for await (const lock of admin.list({ prefix: 'order:' })) console.log(lock.key, lock.instances);`
   * @throws LockConfigError where the provider cannot tell. The iteration throws LockUnavailableError when the backend does not answer.
   */
  list(options?: ListOptions): AsyncIterable<ListedLock> {
    return this.manager.list(options);
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

  /**
   * The backend of a provider, for what only its kind can do: `switchTo` of a `FailoverBackend`, `purge` of a `RowLockBackend`.
   *
   * @example `admin.backend(FailoverBackend).switchTo('sql')`
   * @param provider default: the module's default provider
   * @throws LockConfigError where the provider has a backend of another kind
   */
  backend<B extends LockBackend>(kind: BackendClass<B>, provider?: string): B {
    return this.manager.backend(kind, provider);
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
