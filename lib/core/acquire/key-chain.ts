import type { AcquireTrace } from '../../api/lock-traces.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Holder } from '../hold/holder.js';
import type { KeyQueue } from './key-queue.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import { NOT_ASKED } from './lock-observer.js';
import { Waiter } from './waiter.js';

/** A waiter that joined its queue before its turn. */
interface EarlyWaiter {
  readonly waiter: Waiter;
  readonly outcome: Promise<Holder>;
}

/**
 * Acquires several keys in order. Together with the request for a key, it sends requests for the following keys, each
 * of which takes effect only if the one before it is granted. A backend that applies this rule grants all of them in
 * one round trip.
 *
 * A key is requested early only if no caller in this process holds it or waits for it. An early waiter is not reported
 * before its turn. If the previous key isn't granted, the early request has no effect and leaves no queue entry; the
 * key is requested again when its turn comes.
 */
export class KeyChain {
  /** The waiters for the next keys, in key order. */
  #early: EarlyWaiter[] = [];

  constructor(
    private readonly keys: readonly string[],
    private readonly plan: LockPlan,
    private readonly signal: AbortSignal | undefined,
    private readonly startedAt: number,
    /** The lock's keys acquired so far; the list grows. */
    private readonly acquired: readonly Holder[],
  ) {}

  /**
   * Acquires the next key.
   *
   * @param otherKeysHeld how many other keys the owner holds
   * @param outer the locks enclosing the owner
   * @param around the surrounding hold of the same key, if the owner may not re-enter it
   */
  acquire(
    key: string,
    otherKeysHeld: number,
    outer: readonly GrantedLock[],
    around: Holder | undefined,
  ): Promise<Holder> {
    const early = this.#early.shift();
    const { traced } = this.plan.core.observer;
    // The common case: the backend granted all keys in one response.
    if (early?.waiter.holder && traced === undefined) return early.outcome;
    const request = (trace?: AcquireTrace) => this.#request(key, otherKeysHeld, outer, around, trace);
    const acquire = early === undefined ? request : (trace?: AcquireTrace) => this.#takeTurn(early, request, trace);
    return traced === undefined ? acquire() : traced(subjectOf(key, this.plan), this.signal, acquire);
  }

  /** Dismisses the early waiters. Returns the holds of any that were already granted. */
  dismiss(): readonly Holder[] {
    const waiters = this.#early.map(({ waiter }) => waiter);
    this.#early = [];
    for (const waiter of waiters) waiter.dismiss(NOT_ASKED);
    return waiters.flatMap(({ holder }) => holder ?? []);
  }

  async #takeTurn(
    { waiter, outcome }: EarlyWaiter,
    request: (trace?: AcquireTrace) => Promise<Holder>,
    trace: AcquireTrace | undefined,
  ): Promise<Holder> {
    waiter.beginTurn(trace);
    try {
      return await outcome;
    } catch (error) {
      if (error !== NOT_ASKED) throw error;
    }
    this.dismiss();
    return request(trace);
  }

  #request(
    key: string,
    otherKeysHeld: number,
    outer: readonly GrantedLock[],
    around: Holder | undefined,
    trace: AcquireTrace | undefined,
  ): Promise<Holder> {
    const queue = this.plan.core.queues.of(key, otherKeysHeld);
    const waiter = this.#waiterFor(key, queue, outer, around);
    const outcome = waiter.acquire(trace);
    this.#requestAhead(waiter, queue, outer);
    return outcome;
  }

  /** Requests as many of the following keys as the backend can send together with `first`'s key. */
  #requestAhead(first: Waiter, firstQueue: KeyQueue, outer: readonly GrantedLock[]): void {
    const { core } = this.plan;
    let before = first;
    let queue = firstQueue;
    for (const key of this.keys.slice(this.keys.indexOf(first.key) + 1)) {
      const after = queue.requestInFlightFor(before);
      if (after === undefined || core.backend.chains?.(before.key, key) !== true) return;
      if (outer.some(({ provider, keys }) => provider === core.name && keys.includes(key))) return;
      queue = core.queues.of(key, queue.otherKeysHeld + 1);
      if (!queue.isEmpty) return;
      const waiter = this.#waiterFor(key, queue, outer, undefined);
      const outcome = waiter.acquire(undefined, after);
      // The waiter may be refused before its turn, when no caller is awaiting its outcome yet.
      outcome.catch(() => undefined);
      this.#early.push({ waiter, outcome });
      before = waiter;
    }
  }

  #waiterFor(key: string, queue: KeyQueue, outer: readonly GrantedLock[], around: Holder | undefined): Waiter {
    const since = key === this.keys[0] ? this.startedAt : this.plan.core.clock.now();
    const heldLocks = { outer, around, acquired: this.acquired };
    return new Waiter(queue, this.plan, this.startedAt, since, this.signal, heldLocks);
  }
}
