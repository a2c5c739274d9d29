import type { LockError } from '../../api/errors.js';
import type { AcquireRequest, Grant, MemberLockRequest, MemberTerms } from '../../api/lock-provider.js';
import type { DenseSetItem } from '../../core/toolkit/dense-set.js';
import type { Confirmation } from './confirmation.js';
import type { Epoch } from './epochs.js';

/**
 * One request in one epoch, to the member of that epoch. It has its own id: the composite's request may return to the same member in a later epoch,
 * and a release from the earlier epoch that arrives late must not free the later lock.
 */
export class FailoverRequest implements MemberTerms, DenseSetItem {
  readonly minHold = 0;
  readonly atMember: MemberLockRequest;
  slot = -1;
  grant: Grant | undefined;
  /** Until when the lock is held, as last reported to the core. */
  reportedUntil = -Infinity;
  /** Whether the member was out of reach since it last acknowledged the lock, so that it must confirm the lock. */
  isDoubtful = false;
  /** Whether the request was refused or released, or a request of another epoch has replaced it. */
  isOver = false;
  #signal: AbortSignal | undefined;
  #withdrawal: AbortController | undefined;

  constructor(
    private readonly request: AcquireRequest,
    readonly epoch: Epoch,
    readonly id: string,
    readonly lease: number,
    /** How many suspensions of the machine were known when the last acknowledged command was sent. */
    public suspensions: number,
  ) {
    this.atMember = epoch.member.locking.request(request, this);
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
    // A composite that is built on this one has a new signal for each attempt.
    this.#signal = undefined;
    return this.atMember.acquire();
  }

  /** Until when this process surely holds the lock: the member keeps it, and its epoch is confirmed. */
  heldUntil(confirmation: Confirmation): number {
    return Math.min(this.atMember.validUntil, confirmation.validUntil(this.epoch.number));
  }

  /** Takes a waiter out of the queue of a member that grants no more. */
  withdraw(): void {
    this.#withdrawal ??= new AbortController();
    this.#withdrawal.abort();
  }
}
