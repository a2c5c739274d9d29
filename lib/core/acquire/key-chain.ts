import type { AcquireTrace } from '../../api/lock-traces.js';
import { acquireChannel } from '../events/channels.js';
import { traceAcquisition } from '../events/tracing.js';
import type { GrantedLock } from '../hold/granted-lock.js';
import type { KeyQueue } from './key-queue.js';
import { LocalCaller } from './local-caller.js';
import { type LockPlan, subjectOf } from './lock-plan.js';
import { NOT_ASKED } from './refusals.js';

/** A caller that has come before its turn. */
interface EarlyCaller {
  readonly caller: LocalCaller;
  readonly outcome: Promise<LocalCaller>;
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
  #early: EarlyCaller[] = [];

  constructor(
    private readonly keys: readonly string[],
    private readonly plan: LockPlan,
    private readonly signal: AbortSignal | undefined,
    private readonly startedAt: number,
    /** The keys of the lock that were acquired so far: the list grows. */
    private readonly acquired: readonly LocalCaller[],
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
    around: LocalCaller | undefined,
  ): Promise<LocalCaller> {
    const early = this.#early.shift();
    // Usually the backend has granted all in one answer.
    if (early?.caller.isHolding && !acquireChannel.hasSubscribers) return early.outcome;
    const ask = (trace?: AcquireTrace) => this.#ask(key, otherKeysHeld, outer, around, trace);
    const acquire = early === undefined ? ask : (trace?: AcquireTrace) => this.#takeTurn(early, ask, trace);
    if (!acquireChannel.hasSubscribers) return acquire();
    return traceAcquisition(subjectOf(key, this.plan), this.signal, acquire);
  }

  /** Sends the early callers away. Answers those of them that hold. */
  dismiss(): readonly LocalCaller[] {
    const callers = this.#early.map(({ caller }) => caller);
    this.#early = [];
    for (const caller of callers) caller.dismiss(NOT_ASKED);
    return callers.filter((caller) => caller.isHolding);
  }

  async #takeTurn(
    { caller, outcome }: EarlyCaller,
    ask: (trace?: AcquireTrace) => Promise<LocalCaller>,
    trace: AcquireTrace | undefined,
  ): Promise<LocalCaller> {
    caller.beginTurn();
    if (trace) caller.tracedBy(trace, outcome);
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
    around: LocalCaller | undefined,
    trace: AcquireTrace | undefined,
  ): Promise<LocalCaller> {
    const queue = this.plan.queues.of(key, otherKeysHeld);
    const caller = this.#callerOf(key, queue);
    caller.runsUnder(outer, around, this.acquired);
    const outcome = caller.acquire();
    if (trace) caller.tracedBy(trace, outcome);
    this.#askAhead(caller, queue, outer);
    return outcome;
  }

  /** Asks for the keys behind that of `first`, who has just come, as far as they can be sent with it. */
  #askAhead(first: LocalCaller, firstQueue: KeyQueue, outer: readonly GrantedLock[]): void {
    const { core, queues } = this.plan;
    let before = first;
    let queue = firstQueue;
    for (const key of this.keys.slice(this.keys.indexOf(first.key) + 1)) {
      const after = queue.askingFor(before);
      if (after === undefined || core.backend.chains?.(before.key, key) !== true) return;
      if (outer.some(({ provider, keys }) => provider === core.name && keys.includes(key))) return;
      queue = queues.of(key, queue.otherKeysHeld + 1);
      if (!queue.isEmpty) return;
      const caller = this.#callerOf(key, queue);
      caller.runsUnder(outer, undefined, this.acquired);
      const outcome = caller.acquire(after);
      // The caller may be refused before its turn.
      outcome.catch(() => undefined);
      this.#early.push({ caller, outcome });
      before = caller;
    }
  }

  #callerOf(key: string, queue: KeyQueue): LocalCaller {
    const { core, settings, origin } = this.plan;
    const since = key === this.keys[0] ? this.startedAt : core.clock.now();
    return new LocalCaller(queue, core, settings, origin, this.startedAt, since, this.signal);
  }
}
