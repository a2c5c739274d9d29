import { LockConfigError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import { after } from '../toolkit/answer.js';
import type { Clock } from '../../api/clock.js';
import { GrantedLock } from '../hold/granted-lock.js';
import { type Hold, lostError } from '../hold/hold.js';
import type { LockPlan } from './lock-plan.js';
import type { Answer } from '../../api/lock-provider.js';
import type { LockLogger } from '../../api/logger.js';
import { surroundingLocks } from '../hold/owner-context.js';
import { enter, surroundingsOf } from './re-entry.js';
import { nameOf } from '../events/subject.js';

/** Takes the keys of one lock for one owner: re-enters what the owner holds already, acquires the rest, all or nothing. */
export class LockTaker {
  #warnedOfOrder = false;

  constructor(
    /** Whose locks these are: one application never re-enters the locks of another. */
    private readonly owner: object,
    private readonly clock: Clock,
    private readonly logger: LockLogger,
    /** Throws when no new lock may be taken now. */
    private readonly assertAccepting: (subject: LockEvent) => void,
  ) {}

  /** @param keys sorted, each once. */
  take(keys: readonly string[], plan: LockPlan, signal: AbortSignal | undefined): Answer<GrantedLock> {
    const startedAt = this.clock.now();
    const [key] = keys;
    if (keys.length > 1 || key === undefined) return this.#takeAll(keys, plan, signal, startedAt);
    // One key of a provider that needs no I/O costs no promise.
    const hold = this.#takeOne(key, plan, signal, startedAt, startedAt);
    return after(hold, (granted) => this.#granted([granted], plan));
  }

  /** One after the other in sorted order, so that two callers cannot wait for each other. */
  async #takeAll(
    keys: readonly string[],
    plan: LockPlan,
    signal: AbortSignal | undefined,
    startedAt: number,
  ): Promise<GrantedLock> {
    const holds: Hold[] = [];
    try {
      for (const key of keys) {
        // Those that the caller has re-entered are among its own.
        const held = holds.filter(({ entries }) => entries === 1).length;
        holds.push(await this.#takeOne(key, plan, signal, startedAt, this.clock.now(), held));
      }
      // The machine may have been suspended while the caller waited for the last key, or for this very answer; the backend knows
      // whether the others stand.
      const isUnconfirmed = (hold: Hold) => hold.status() === 'unconfirmed';
      for (let hold = holds.find(isUnconfirmed); hold; hold = holds.find(isUnconfirmed)) {
        await plan.active.holds.extend(hold, hold.lease);
      }
    } catch (error) {
      await this.#giveBack(holds, plan);
      throw error;
    }
    return this.#granted(holds, plan);
  }

  /** @param held how many keys were acquired for the same lock so far */
  #takeOne(
    key: string,
    plan: LockPlan,
    signal: AbortSignal | undefined,
    startedAt: number,
    now: number,
    held = 0,
  ): Answer<Hold> {
    // Looked at before each key: what needs no waiting would not notice an abort.
    signal?.throwIfAborted();
    const { active, settings, origin } = plan;
    const subject = {
      key,
      provider: active.name,
      mode: settings.mode,
      method: origin.method,
      template: origin.template,
    };
    this.assertAccepting(subject);
    const around = surroundingLocks(this.owner);
    let depth = held;
    if (around.length > 0) {
      const { same, later, keys } = surroundingsOf(key, active, around);
      depth += keys;
      if (same) return enter(same, subject, settings.reentrant);
      if (later !== undefined) this.#warnOfOrder(subject, later);
    }
    const deadline = startedAt + settings.wait;
    return active.take({ subject, terms: settings, startedAt, deadline, depth, signal, around }, now);
  }

  /** The last look before the task runs: the application may have stopped, or a key been lost, while the caller waited. */
  #granted(holds: readonly Hold[], plan: LockPlan): GrantedLock {
    const { active, settings } = plan;
    const [first, ...rest] = holds;
    if (!first) throw new LockConfigError('A lock needs a key.');
    try {
      this.assertAccepting(first.subject);
      const lost = holds.find((hold) => !hold.isValid());
      if (lost) throw lost.lostError ?? lostError(lost.subject, 'expired');
    } catch (error) {
      void this.#giveBack(holds, plan);
      throw error;
    }
    if (settings.maxHold !== Infinity) {
      const endsAt = this.clock.now() + settings.maxHold;
      for (const hold of holds) {
        // A nested entry keeps the end that its outer lock has set.
        if (hold.entries > 1) continue;
        hold.endsAt = endsAt;
        active.holds.reschedule(hold);
      }
    }
    return new GrantedLock([first, ...rest], active, settings.mode, this.owner);
  }

  /** Sends all releases before it awaits the first answer: the caller has waited long enough. */
  async #giveBack(holds: readonly Hold[], { active }: LockPlan): Promise<void> {
    const answers = holds.toReversed().map((hold) => active.holds.leave(hold, true));
    for (const answer of answers) await answer;
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
