import { LockConfigError } from '../../api/errors.js';
import type { Clock } from '../../api/clock.js';
import type { LockOptions } from '../../api/lock-options.js';
import type { AcquireTrace } from '../../api/lock-traces.js';
import { nameOf } from '../events/subject.js';
import { lostDuringWait, lostError } from '../hold/lost-error.js';
import type { Holder } from '../hold/holder.js';
import { identity } from '../hold/releases.js';
import { GrantedLock, reenterableLocks, surroundingLocks } from '../hold/granted-lock.js';
import type { Lock } from '../../api/lock.js';
import type { Lifecycle } from '../lifecycle.js';
import { KeyChain } from './key-chain.js';
import { type LockPlan, subjectOf } from '../plan/lock-plan.js';
import { excludes, heldAlready, reEnter } from './re-entry.js';
import { type HeldWhileWaiting, Waiter } from './waiter.js';

/** The holders that make up one lock. */
type Holds = readonly [Holder, ...Holder[]];

const NONE: readonly Holder[] = [];

/** Options that apply to a single call. The rest belong to a {@link LockPlan}, which many calls share. */
export type CallOptions = Pick<LockOptions, 'signal' | 'within'>;

/**
 * Acquires the keys of one lock for one owner, all or nothing: re-enters the keys that the caller holds, and acquires
 * the others.
 */
export class LockAcquirer {
  constructor(
    /** The owner of these locks. One application never re-enters another's locks. */
    private readonly owner: object,
    private readonly lifecycle: Lifecycle,
    private readonly clock: Clock,
  ) {}

  /**
   * @param keys sorted and distinct. If all callers use this order, they can't deadlock
   * @throws immediately on misuse or if the queue is full
   */
  acquire(keys: readonly string[], plan: LockPlan, { signal, within }: CallOptions = {}): Promise<GrantedLock> {
    const startedAt = this.clock.now();
    const outerLock = within && this.#usable(within, keys, plan);
    if (keys.length > 1) {
      if (plan.settings.wait > 0) plan.core.observer.nests(keys, plan, this.#outerLocks(outerLock));
      return this.#acquireAll(keys, plan, signal, outerLock, startedAt);
    }
    const [key = ''] = keys;
    const acquired = this.#acquireKey(key, plan, signal, outerLock, startedAt, NONE);
    return acquired.then((hold) => {
      const holds: Holds = [hold];
      try {
        if (hold.isNew) plan.core.observer.holds(hold);
        return this.#granted(holds, plan, signal, outerLock);
      } catch (error) {
        return releaseAll(holds, error);
      }
    });
  }

  async #acquireAll(
    keys: readonly string[],
    plan: LockPlan,
    signal: AbortSignal | undefined,
    within: GrantedLock | undefined,
    startedAt: number,
  ): Promise<GrantedLock> {
    const holds: Holder[] = [];
    const chain = new KeyChain(keys, plan, signal, startedAt, holds);
    try {
      for (const key of keys) {
        const hold = await this.#acquireKey(key, plan, signal, within, startedAt, holds, chain);
        holds.push(hold);
        if (hold.isNew) plan.core.observer.holds(hold);
        // If an earlier key was lost, don't wait for the remaining keys.
        const loss = holds.find(({ lostError }) => lostError)?.lostError;
        if (loss) throw lostDuringWait(loss, key);
      }
      await this.#verify(holds);
      const [first, ...rest] = holds;
      if (!first) throw new LockConfigError('A lock needs a key: pass a string or a nonempty array of strings.');
      return this.#granted([first, ...rest], plan, signal, within);
    } catch (error) {
      return await releaseAll([...holds, ...chain.dismiss()], error);
    }
  }

  /**
   * @param acquired the keys already acquired for the same lock
   * @param chain set if the lock has several keys
   */
  #acquireKey(
    key: string,
    plan: LockPlan,
    signal: AbortSignal | undefined,
    within: GrantedLock | undefined,
    startedAt: number,
    acquired: readonly Holder[],
    chain?: KeyChain,
  ): Promise<Holder> {
    // Check before each key; otherwise, an abort would go unnoticed if the key is free.
    signal?.throwIfAborted();
    const { core, settings } = plan;
    const outer = this.#outerLocks(within);
    if (this.lifecycle.state !== 'running') this.lifecycle.assertAccepting(subjectOf(key, plan), outer);
    let around: Holder | undefined;
    let otherKeysHeld = 0;
    // Re-entered keys are counted below, among the keys that the caller already held.
    for (const { isNew } of acquired) if (isNew) otherKeysHeld += 1;
    if (outer.length > 0) {
      const subject = subjectOf(key, plan);
      const { reentrant } = settings;
      const reenterable = reentrant === 'explicit' ? reenterableLocks(this.owner) : [];
      const mayEnter = (lock: GrantedLock) => reentrant === true || lock === within || reenterable.includes(lock);
      const held = heldAlready(key, core.name, outer, mayEnter);
      const now = this.clock.now();
      if (held.same) return this.#verified(reEnter(held.same, subject, settings.limited, now));
      held.around?.expire(now);
      if (held.around?.isValid(now) && excludes(held.around.terms.mode, settings.mode)) {
        around = held.around;
      }
      if (around !== undefined || (settings.wait > 0 && !held.around)) core.observer.nests([key], plan, outer, around);
      otherKeysHeld += held.keys;
    }
    if (chain) return chain.acquire(key, otherKeysHeld, outer, around);
    const heldLocks = outer.length > 0 ? { outer, around, acquired: NONE } : undefined;
    const { traced } = core.observer;
    if (traced === undefined) return requestKey(key, otherKeysHeld, plan, startedAt, signal, heldLocks);
    // Bound, because a closure here would cost memory in every call, traced or not.
    const request = requestKey.bind(undefined, key, otherKeysHeld, plan, startedAt, signal, heldLocks);
    return traced(subjectOf(key, plan), signal, request);
  }

  /** A re-entered hold, once it is verified. */
  async #verified(hold: Holder): Promise<Holder> {
    try {
      await this.#verify([hold]);
      return hold;
    } catch (error) {
      return releaseAll([hold], error);
    }
  }

  /**
   * Verifies with the backend that all keys are still held, if the machine may have been suspended during the wait for
   * the last key or since a re-entered key was granted. Repeats the check if the process may have been suspended in the
   * meantime.
   */
  async #verify(holds: readonly Holder[]): Promise<void> {
    for (;;) {
      const now = this.clock.now();
      const unverified = holds.find((hold) => hold.status(now) === 'unverified');
      if (!unverified) return;
      await unverified.extend(unverified.grant.lease.length);
    }
  }

  /** Creates the lock after checking that the application hasn't shut down and no key was lost during the wait. */
  #granted(
    holds: Holds,
    { core, settings }: LockPlan,
    signal: AbortSignal | undefined,
    within: GrantedLock | undefined,
  ): GrantedLock {
    // The signal may have aborted in the same tick as the grant.
    signal?.throwIfAborted();
    if (this.lifecycle.state !== 'running') {
      this.lifecycle.assertAccepting(holds[0].subject, this.#outerLocks(within));
    }
    const now = this.clock.now();
    for (const hold of holds) {
      hold.expire(now);
      if (!hold.isHolding) throw hold.lostError ?? lostError(hold.subject, 'expired');
    }
    if (settings.maxHold !== Infinity) {
      // For a nested entry, the outer lock's `maxHold` stays in force.
      for (const hold of holds) if (hold.isNew) hold.endAfter(settings.maxHold, now);
    }
    return new GrantedLock(holds, core, settings, this.owner);
  }

  /** The locks around the caller, including the one passed as `within`. */
  #outerLocks(within: GrantedLock | undefined): readonly GrantedLock[] {
    const outer = surroundingLocks(this.owner);
    return within === undefined || outer.includes(within) ? outer : [within, ...outer];
  }

  /**
   * The lock that the caller passed as `within`.
   *
   * @throws LockConfigError if it cannot be re-entered, LockLostError if it has ended
   */
  #usable(within: Lock, keys: readonly string[], { core, origin }: LockPlan): GrantedLock {
    const subject = { key: keys[0] ?? '', provider: core.name, method: origin.method };
    if (!(within instanceof GrantedLock) || within.owner !== this.owner) {
      throw new LockConfigError(
        `${nameOf(subject)}: option "within" is not a lock from this application. Pass the lock you got from withLock() or acquire().`,
        subject,
      );
    }
    if (within.provider !== core.name || !keys.some((key) => within.keys.includes(key))) {
      throw new LockConfigError(
        `${nameOf(subject)}: option "within" is the lock "${within.keys.join('", "')}" of provider "${within.provider}", but it holds none of this call's keys. Pass a lock that holds one, or omit it.`,
        subject,
      );
    }
    const error = within.lostError ?? (within.isOpen ? undefined : lostError(within.holds[0].subject, 'released'));
    if (error) throw error;
    return within;
  }
}

/** Waits for a key. Gets its queue only now: a subscriber of the trace may have emptied the queue, which removes it. */
function requestKey(
  key: string,
  otherKeysHeld: number,
  plan: LockPlan,
  startedAt: number,
  signal: AbortSignal | undefined,
  heldLocks: HeldWhileWaiting | undefined,
  trace?: AcquireTrace,
): Promise<Holder> {
  const queue = plan.core.queues.of(key, otherKeysHeld);
  return new Waiter(queue, plan, startedAt, startedAt, signal, heldLocks).acquire(trace);
}

/** Releases the keys of a failed call, then throws its error. Sends all releases before awaiting the first response. */
async function releaseAll(holds: readonly Holder[], error: unknown): Promise<never> {
  await Promise.all(holds.toReversed().map((hold) => hold.release(true, undefined, identity)));
  throw error;
}
