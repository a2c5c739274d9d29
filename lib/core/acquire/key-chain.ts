import type { AcquireTrace } from '../../api/lock-traces.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { Holder } from '../hold/holder.js';
import type { KeyQueue } from './key-queue.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import { NOT_ASKED } from './lock-observer.js';
import { Waiter } from './waiter.js';

/** A waiter that has come before its turn. */
interface EarlyWaiter {
  readonly waiter: Waiter;
  readonly outcome: Promise<Holder>;
}

/**
 * Acquires several keys in their order. With a key that it asks for, it asks for the keys behind it, each only if the one before it is granted, so a
 * backend that executes this rule is asked once for all of them.
 *
 * A key is asked for early only where nobody of this process holds it or waits for it. Nothing is reported of an early caller before its turn. Where
 * the key before it was not granted, its ask has no effect and leaves it in no queue, and its key is asked for again in its turn.
 */
export class KeyChain {
  /** Those that come next, in the order of their keys. */
  #early: EarlyWaiter[] = [];

  constructor(
    private readonly keys: readonly string[],
    private readonly plan: LockPlan,
    private readonly signal: AbortSignal | undefined,
    private readonly startedAt: number,
    /** The keys of the lock that were acquired so far: the list grows. */
    private readonly acquired: readonly Holder[],
  ) {}

  /**
   * Acquires the key that has its turn.
   *
   * @param otherKeysHeld how many others the owner holds
   * @param outer the locks around the owner
   * @param around the hold of the same key that the owner may not enter
   */
  acquire(
    key: string,
    otherKeysHeld: number,
    outer: readonly GrantedLock[],
    around: Holder | undefined,
  ): Promise<Holder> {
    const early = this.#early.shift();
    const { traced } = this.plan.core.observer;
    // Usually the backend has granted all in one answer.
    if (early?.waiter.holder && traced === undefined) return early.outcome;
    const ask = (trace?: AcquireTrace) => this.#ask(key, otherKeysHeld, outer, around, trace);
    const acquire = early === undefined ? ask : (trace?: AcquireTrace) => this.#takeTurn(early, ask, trace);
    return traced === undefined ? acquire() : traced(subjectOf(key, this.plan), this.signal, acquire);
  }

  /** Sends the early waiters away. Answers what those hold that were let in. */
  dismiss(): readonly Holder[] {
    const waiters = this.#early.map(({ waiter }) => waiter);
    this.#early = [];
    for (const waiter of waiters) waiter.dismiss(NOT_ASKED);
    return waiters.flatMap(({ holder }) => holder ?? []);
  }

  async #takeTurn(
    { waiter, outcome }: EarlyWaiter,
    ask: (trace?: AcquireTrace) => Promise<Holder>,
    trace: AcquireTrace | undefined,
  ): Promise<Holder> {
    waiter.beginTurn(trace);
    try {
      return await outcome;
    } catch (error) {
      if (error !== NOT_ASKED) throw error;
    }
    this.dismiss();
    return ask(trace);
  }

  #ask(
    key: string,
    otherKeysHeld: number,
    outer: readonly GrantedLock[],
    around: Holder | undefined,
    trace: AcquireTrace | undefined,
  ): Promise<Holder> {
    const queue = this.plan.core.queues.of(key, otherKeysHeld);
    const waiter = this.#waiterFor(key, queue, outer, around);
    const outcome = waiter.acquire(trace);
    this.#askAhead(waiter, queue, outer);
    return outcome;
  }

  /** Asks for the keys behind that of `first`, who has just come, as far as they can be sent with it. */
  #askAhead(first: Waiter, firstQueue: KeyQueue, outer: readonly GrantedLock[]): void {
    const { core } = this.plan;
    let before = first;
    let queue = firstQueue;
    for (const key of this.keys.slice(this.keys.indexOf(first.key) + 1)) {
      const after = queue.askingFor(before);
      if (after === undefined || core.backend.chains?.(before.key, key) !== true) return;
      if (outer.some(({ provider, keys }) => provider === core.name && keys.includes(key))) return;
      queue = core.queues.of(key, queue.otherKeysHeld + 1);
      if (!queue.isEmpty) return;
      const waiter = this.#waiterFor(key, queue, outer, undefined);
      const outcome = waiter.acquire(undefined, after);
      // It may be refused before its turn.
      outcome.catch(() => undefined);
      this.#early.push({ waiter, outcome });
      before = waiter;
    }
  }

  #waiterFor(key: string, queue: KeyQueue, outer: readonly GrantedLock[], around: Holder | undefined): Waiter {
    const since = key === this.keys[0] ? this.startedAt : this.plan.core.clock.now();
    const meanwhile = { outer, around, acquired: this.acquired };
    return new Waiter(queue, this.plan, this.startedAt, since, this.signal, meanwhile);
  }
}
