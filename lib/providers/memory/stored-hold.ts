import type { LimitShare, LockMode } from '../../api/lock-mode.js';
import type { AcquireRequest } from '../../api/lock-provider.js';

/** Somebody who asks the store for a key. */
export type StoreRequest = Pick<AcquireRequest, 'id' | 'mode' | 'limited' | 'lease' | 'minHold' | 'since' | 'lost'>;

/** Somebody who has it. */
export interface StoredHold {
  readonly holder: string;
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly token: bigint;
  /** When the lease ends, on the monotonic clock. */
  expiresAt: number;
  /** Until when the key is kept at least. */
  readonly keepUntil: number;
  /** Released before that: nobody has it any more, and it excludes others as before until it expires. */
  isRetained: boolean;
  /** Written by its holder, for those that wait. */
  label?: string;
  /** The request to tell when the lock is taken away. */
  readonly request: StoreRequest;
}
