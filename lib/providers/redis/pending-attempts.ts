import type { Clock, Timer } from '../../api/clock.js';
import { HolderTable } from '../../core/toolkit/holder-table.js';
import type { Attempt } from './attempt.js';

/** How often a process asks again for the first waiter of each lock, in ms: well inside the 3 s after which it counts as dead. */
const ASK_AGAIN = 1_000;

/** When to ask again for a lock that frees itself. */
interface WakeUp {
  readonly timer: Timer;
  /** On the monotonic clock. */
  readonly at: number;
  /** The first in the queue that is known. */
  attempt: Attempt;
}

/** The attempts of this process that were not granted yet, and when each of them asks again. */
export class PendingAttempts {
  /** By holder. An attempt whose outcome is unknown stays until it asks again or is released. */
  readonly attempts = new HolderTable<Attempt>();
  /** By lock. */
  readonly #wakeUps = new Map<string, WakeUp>();
  /** The locks for which all waiters have asked in this second: each of them may find that it was missing. */
  readonly #recalled = new Set<string>();
  #timer: Timer | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly ask: (attempt: Attempt) => void,
  ) {}

  /**
   * All that wait, for this lock or for any, ask: messages may have been missed. In the order in which they came: where the queue was
   * lost, the first that asks has the lock.
   */
  askAgain(lock?: string): void {
    const attempts = this.attempts.values().filter((attempt) => lock === undefined || attempt.lock === lock);
    for (const attempt of attempts.sort(byTicket)) this.ask(attempt);
  }

  /** All that wait for this lock ask, once a second at most. */
  recall(lock: string): void {
    if (this.#recalled.has(lock)) return;
    this.#recalled.add(lock);
    this.askAgain(lock);
  }

  /** The attempt is queued; the lock frees itself in `freeIn` ms unless it is renewed. */
  queued(attempt: Attempt, freeIn: number): void {
    this.#lookLater();
    if (freeIn < ASK_AGAIN) this.#wakeWhenFree(attempt, freeIn);
  }

  /** The lock frees itself in `freeIn` ms. */
  retained(lock: string, freeIn: number): void {
    const attempt = this.#firstOf(lock);
    if (attempt) this.#wakeWhenFree(attempt, freeIn);
  }

  /** Forgets all. Answers those that were not answered. */
  close(): Attempt[] {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    for (const { timer } of this.#wakeUps.values()) this.clock.clearTimer(timer);
    this.#wakeUps.clear();
    const open = this.attempts.values().filter(({ isOver }) => !isOver);
    this.attempts.clear();
    return open;
  }

  /** One ask for a lock that frees itself is enough: every ask serves the queue. */
  #wakeWhenFree(attempt: Attempt, freeIn: number): void {
    const { lock } = attempt;
    const at = this.clock.now() + freeIn;
    const known = this.#wakeUps.get(lock);
    if (known && at >= known.at) {
      if (byTicket(attempt, known.attempt) < 0) known.attempt = attempt;
      return;
    }
    if (known) this.clock.clearTimer(known.timer);
    // A key that ends in 0 ms is there until the next one.
    const timer = this.clock.setTimer(() => {
      this.#wakeUps.delete(lock);
      const next = wakeUp.attempt.isOver ? this.#firstOf(lock) : wakeUp.attempt;
      if (next) this.ask(next);
    }, freeIn + 1);
    const wakeUp: WakeUp = { timer, attempt, at };
    this.#wakeUps.set(lock, wakeUp);
  }

  #firstOf(lock: string): Attempt | undefined {
    let first: Attempt | undefined;
    for (const attempt of this.attempts.values()) {
      if (attempt.lock !== lock || attempt.state !== 'queued') continue;
      if (!first || byTicket(attempt, first) < 0) first = attempt;
    }
    return first;
  }

  #lookLater(): void {
    this.#timer ??= this.clock.setTimer(() => {
      this.#timer = undefined;
      this.#recalled.clear();
      this.#askForTheFirst();
      if (this.attempts.size > 0) this.#lookLater();
    }, ASK_AGAIN);
  }

  /**
   * The first of each lock asks, which shows that this process lives and finds a grant whose message was lost: grants go in the order
   * of the queue. So a check costs the server one operation a lock, also if 10 000 wait for it.
   */
  #askForTheFirst(): void {
    const first = new Map<string, Attempt>();
    for (const attempt of this.attempts.values()) {
      if (attempt.isUnconfirmed) this.ask(attempt);
      const known = first.get(attempt.lock);
      if (attempt.state === 'queued' && (!known || byTicket(attempt, known) < 0)) first.set(attempt.lock, attempt);
    }
    for (const attempt of [...first.values()].sort(byTicket)) this.ask(attempt);
  }
}

function byTicket(one: Attempt, other: Attempt): number {
  if (one.ticket === other.ticket) return 0;
  return one.ticket < other.ticket ? -1 : 1;
}
