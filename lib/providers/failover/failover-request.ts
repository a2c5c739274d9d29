import type { LockError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock-mode.js';
import type { AcquireRequest, Grant } from '../../api/lock-provider.js';
import type { Placed } from '../../core/toolkit/dense-set.js';
import type { Confirmation } from './confirmation.js';
import type { Epoch } from './epochs.js';

/**
 * One request in one epoch: what the member of that epoch is asked for. It has an id of its own, because the same request may come back
 * to the same member in a later epoch, and a release of the earlier ask that arrives late must not free the later one.
 */
export class FailoverRequest implements AcquireRequest, Placed {
  /** Among those of its backend. */
  place = -1;
  /** The member's own. */
  state: unknown;
  /** The grant of the member. */
  grant: Grant | undefined;
  #reportedUntil = -Infinity;
  #isDoubtful = false;
  #isOver = false;
  #keptUntil = -Infinity;
  #signal: AbortSignal | undefined;
  #withdrawal: AbortController | undefined;

  constructor(
    private readonly request: AcquireRequest,
    readonly epoch: Epoch,
    readonly id: string,
    readonly lease: number,
    /** How many suspensions of the machine were known when the member was last asked. */
    public suspensions: number,
  ) {}

  get key(): string {
    return this.request.key;
  }

  get mode(): LockMode {
    return this.request.mode;
  }

  get otherKeysHeld(): number {
    return this.request.otherKeysHeld;
  }

  get renew(): boolean {
    return true;
  }

  get minHold(): number {
    return 0;
  }

  get wait(): number {
    return this.request.wait;
  }

  get since(): number {
    return this.request.since;
  }

  get callers(): number {
    return this.request.callers;
  }

  get signal(): AbortSignal {
    this.#withdrawal ??= new AbortController();
    return (this.#signal ??= AbortSignal.any([this.request.signal, this.#withdrawal.signal]));
  }

  /** Until when the member keeps the lock, on the monotonic clock. */
  get keptUntil(): number {
    return this.#keptUntil;
  }

  /** Until when the lock is held, as last reported to the core, on the monotonic clock. */
  get reportedUntil(): number {
    return this.#reportedUntil;
  }

  /** The member was out of reach since it last acknowledged the lock: ask whether it still holds. */
  get isDoubtful(): boolean {
    return this.#isDoubtful;
  }

  /** Until when the lock is surely ours: the member keeps it, and its epoch is confirmed. */
  heldUntil(confirmation: Confirmation): number {
    return Math.min(this.#keptUntil, confirmation.validUntil(this.epoch.number));
  }

  /** Asked again, with a signal that may be another one: a provider that is built on this one makes one for each ask. */
  askedAgain(): void {
    this.#signal = undefined;
  }

  /** The request was busy or released, or that of another epoch has replaced it. */
  get isOver(): boolean {
    return this.#isOver;
  }

  waits(instead?: LockError): void {
    if (!this.#isOver) this.request.waits(instead);
  }

  lost(cause?: unknown): void {
    if (!this.#isOver) this.request.lost(cause);
  }

  /** Later reports of this request concern nobody. */
  end(): void {
    this.#isOver = true;
  }

  granted(grant: Grant): void {
    this.grant = grant;
    this.#keptUntil = grant.validUntil;
  }

  /** The member has renewed it, by a command that was sent after so many suspensions. */
  renewed(validUntil: number, suspensions: number): void {
    this.#keptUntil = validUntil;
    this.#isDoubtful = false;
    this.suspensions = suspensions;
  }

  /** The core was told that the lock is held until then. */
  reported(validUntil: number): void {
    this.#reportedUntil = validUntil;
  }

  /** The member was out of reach. */
  doubted(): void {
    this.#isDoubtful = true;
  }

  /** Takes a waiter out of the queue of a member that grants no more. */
  withdraw(): void {
    this.#withdrawal ??= new AbortController();
    this.#withdrawal.abort();
  }
}
