import type { LockError } from '../../api/errors.js';
import type { AcquireRequest, Grant, MemberLockRequest, MemberTerms } from '../../api/lock-provider.js';
import type { DenseSetItem } from '../../core/toolkit/dense-set.js';
import type { Epoch } from './epochs.js';

/**
 * One request in one epoch, sent to that epoch's member. It has its own id, because the caller's request may
 * return to the same member in a later epoch. A late release from the earlier epoch must not free the later lock.
 */
export class FailoverRequest implements MemberTerms, DenseSetItem {
  readonly minHold = 0;
  readonly atMember: MemberLockRequest;
  slot = -1;
  grant: Grant | undefined;
  /** The validity last reported to the core. */
  reportedUntil = -Infinity;
  /** Whether the member has been unreachable since it last acknowledged the lock, so a renewal there is due. */
  isDoubtful = false;
  /** Whether the request was rejected, released, or replaced by one in another epoch. */
  isOver = false;
  #signal: AbortSignal | undefined;
  #withdrawal: AbortController | undefined;

  constructor(
    private readonly request: AcquireRequest,
    readonly epoch: Epoch,
    readonly id: string,
    readonly lease: number,
    /** The number of suspensions known when the last acknowledged command was sent. */
    public suspensions: number,
  ) {
    this.atMember = epoch.member.locking.request(request, this);
  }

  get key(): string {
    return this.request.key;
  }

  get wait(): number {
    return this.request.wait;
  }

  get callers(): number {
    return this.request.callers;
  }

  get signal(): AbortSignal {
    this.#withdrawal ??= new AbortController();
    return (this.#signal ??= AbortSignal.any([this.request.signal, this.#withdrawal.signal]));
  }

  waits(instead?: LockError): void {
    if (!this.isOver) this.request.waits(instead);
  }

  lost(cause?: unknown): void {
    if (!this.isOver) this.request.lost(cause);
  }

  /** Sends the request, for the first time or again. */
  acquire(): Promise<Grant | 'busy'> {
    // An enclosing composite provider uses a new signal for each attempt.
    this.#signal = undefined;
    return this.atMember.acquire();
  }

  /** Removes a waiter from the queue of a member that is no longer active. */
  withdraw(): void {
    this.#withdrawal ??= new AbortController();
    this.#withdrawal.abort();
  }
}
