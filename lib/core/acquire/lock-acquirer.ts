import { LockConfigError } from '../../api/errors.js';
import type { Clock } from '../../api/clock.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { LockLogger } from '../../api/logger.js';
import { acquireChannel, holdChannel } from '../events/channels.js';
import { nameOf } from '../events/subject.js';
import { traceAcquisition } from '../events/tracing.js';
import { type Hold, lostError } from '../hold/hold.js';
import { GrantedLock, surroundingLocks } from '../hold/granted-lock.js';
import type { Lifecycle } from '../lifecycle.js';
import type { AcquireTerms } from './acquire-terms.js';
import type { LockPlan } from './lock-plan.js';
import { enter, heldAlready } from './re-entry.js';

/** Acquires the keys of one lock for one owner: re-enters what the owner holds already, acquires the rest, all or nothing. */
export class LockAcquirer {
  #warnedOfOrder = false;

  constructor(
    /** The owner of these locks: one application never re-enters the locks of another. */
    private readonly owner: object,
    private readonly lifecycle: Lifecycle,
    private readonly clock: Clock,
    private readonly logger: LockLogger,
  ) {}

  /** @param keys sorted, each once: taken in this order, two callers cannot wait for each other */
  async acquire(keys: readonly string[], plan: LockPlan, signal: AbortSignal | undefined): Promise<GrantedLock> {
    const startedAt = this.clock.now();
    const holds: Hold[] = [];
    try {
      for (const key of keys) {
        const hold = await this.#acquireKey(key, plan, signal, startedAt, holds);
        holds.push(hold);
        if (hold.entries === 1 && holdChannel.hasSubscribers) hold.trace();
      }
      // The machine may have been suspended while the caller waited for the last key, or for this very answer; the backend knows
      // whether the others are still held.
      const isUnverified = (hold: Hold) => hold.status() === 'unverified';
      while (holds.length > 1) {
        const hold = holds.find(isUnverified);
        if (!hold) break;
        await plan.core.holds.extend(hold, hold.grant.lease);
      }
      // It may have aborted in the very tick of the grant.
      signal?.throwIfAborted();
      return this.#granted(holds, plan);
    } catch (error) {
      // All are sent before the first answer is awaited: the caller has waited long enough.
      await Promise.all(holds.toReversed().map((hold) => plan.core.holds.release(hold, true)));
      throw error;
    }
  }

  /** @param acquired what was acquired for the same lock so far */
  #acquireKey(
    key: string,
    { core, queues, settings, origin }: LockPlan,
    signal: AbortSignal | undefined,
    startedAt: number,
    acquired: readonly Hold[],
  ): Promise<Hold> | Hold {
    // Checked before each key: what needs no waiting would not notice an abort.
    signal?.throwIfAborted();
    const { method, template } = origin;
    const subject = { key, provider: core.name, mode: settings.mode, method, template };
    const outer = surroundingLocks(this.owner);
    this.lifecycle.assertAccepting(subject, () => outer.some((lock) => lock.isHeld()));
    // Keys that the caller has re-entered are among those that it held before.
    let otherKeysHeld = acquired.filter(({ entries }) => entries === 1).length;
    if (outer.length > 0) {
      const { same, later, keys } = heldAlready(key, core.name, outer);
      if (same) return enter(same, subject, settings);
      if (later !== undefined) this.#warnOfOrder(subject, later);
      otherKeysHeld += keys;
    }
    const deadline = startedAt + settings.wait;
    const since = acquired.length === 0 ? startedAt : this.clock.now();
    const { limited } = settings;
    const terms: AcquireTerms = {
      subject,
      timing: settings,
      limited,
      startedAt,
      since,
      deadline,
      signal,
      otherKeysHeld,
      callers: 1,
      outerLocks: outer,
    };
    if (!acquireChannel.hasSubscribers) return queues.acquire(terms);
    return traceAcquisition(subject, signal, () => queues.acquire(terms));
  }

  /** The last check before the task runs: the application may have stopped, or a key been lost, while the caller waited. */
  #granted(holds: readonly Hold[], { core, settings }: LockPlan): GrantedLock {
    const [first, ...rest] = holds;
    if (!first) throw new LockConfigError('A lock needs a key.');
    const outer = surroundingLocks(this.owner);
    this.lifecycle.assertAccepting(first.subject, () => outer.some((lock) => lock.isHeld()));
    const lost = holds.find((hold) => !hold.isValid());
    if (lost) throw lost.lostError ?? lostError(lost.subject, 'expired');
    if (settings.maxHold !== Infinity) {
      const endsAt = this.clock.now() + settings.maxHold;
      for (const hold of holds) {
        // A nested entry keeps the end that its outer lock has set.
        if (hold.entries > 1) continue;
        hold.endsAt = endsAt;
        core.holds.reschedule(hold);
      }
    }
    return new GrantedLock([first, ...rest], core, settings, this.owner);
  }

  #warnOfOrder(subject: LockEvent, held: string): void {
    if (this.#warnedOfOrder) return;
    this.#warnedOfOrder = true;
    this.logger.warn(
      `${nameOf(subject)} is taken under "${held}", which sorts after it: two callers that nest in opposite order wait for each other. ` +
        'Take keys in sorted order, or all at once by their array. (Warned once.)',
    );
  }
}
