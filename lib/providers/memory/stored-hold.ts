import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type { AcquireRequest } from '../../api/lock-provider.js';

/** The part of a request that the store uses. */
export type StoreRequest = Pick<AcquireRequest, 'id' | 'mode' | 'limited' | 'lease' | 'minHold' | 'since' | 'lost'>;

/** A granted key. */
export interface StoredHold {
  readonly holder: string;
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly token: bigint;
  /** When the lease ends. */
  expiresAt: number;
  /** The key stays locked until this time, even if it is released earlier (`minHold`). */
  readonly keepUntil: number;
  /**
   * Whether the hold was released before `keepUntil`. It no longer has a holder, but it excludes others until it
   * expires.
   */
  isRetained: boolean;
  /** The holder's trace label, for waiters to read. */
  label?: string;
  /** The request to notify if the lock is taken away. */
  readonly request: StoreRequest;
}
