import { validUntil } from '../../core/toolkit/validity.js';
import type { Waiter } from './waiter.js';

/**
 * A lock that the server has handed over to several waiters of this process at once, who have it one after the other: whoever
 * releases it passes it on here, without a round trip. (Lock cohorting, after Dice, Marathe and Shavit, PPoPP 2012.)
 *
 * What it keeps of the promise of a lock:
 * - The server knows one holder, the first, and its lease: under that name all renew, and the last one releases. So nobody is let in
 *   by anything but a hold on the server, and no longer than that is surely ours.
 * - The members stand one behind the other in the queue, and stay there until the last one's release takes out all who have had it. So the
 *   order of arrival stays, also when it ends early.
 * - Each has a token of its own, taken from the counter at the hand-over: larger than that of its predecessor, and smaller
 *   than every later one.
 * - Whatever is not certain ends it: then the server serves those who have not had their turn, as if there had been no cohort.
 */
export class Cohort {
  /** Those who have or had the lock, from the first on. */
  readonly served: Waiter[];
  /** Until when the lock is surely ours, on the monotonic clock. Not known before the first has it; if it never does, this is dissolved. */
  #validUntil = Infinity;
  readonly #behind: { readonly waiter: Waiter; readonly token: bigint }[] = [];
  #prolongations = 0;
  #lastShortened = 0;

  constructor(
    /** Under its holder id the server knows the lock. */
    readonly first: Waiter,
    /** The token that the server has for it: that of the first. */
    readonly token: bigint,
  ) {
    first.cohort = this;
    this.served = [first];
  }

  /** The holder under which the server knows the lock. */
  get name(): string {
    return this.first.request.holder;
  }

  get validUntil(): number {
    return this.#validUntil;
  }

  /** A member that is to have the lock after those that were added before. */
  add(waiter: Waiter, token: bigint): void {
    waiter.cohort = this;
    this.#behind.push({ waiter, token });
  }

  /** Whoever is next and still wants the lock; nothing when nobody is, or when it is not surely ours any more. */
  next(now: number): { readonly waiter: Waiter; readonly token: bigint } | undefined {
    if (now >= this.#validUntil) return undefined;
    let next = this.#behind.shift();
    while (next?.waiter.isOver) next = this.#behind.shift();
    if (next) this.served.push(next.waiter);
    return next;
  }

  /**
   * It is about to be renewed, to `lease` ms. Answers the number of this renewal, for {@link prolonged}. If it shortens the
   * lease, that counts from here on, also if its answer is lost.
   */
  prolonging(lease: number, now: number): number {
    this.#prolongations += 1;
    const until = validUntil(now, lease);
    if (until < this.#validUntil) {
      this.#validUntil = until;
      this.#lastShortened = this.#prolongations;
    }
    return this.#prolongations;
  }

  /** The renewal of this number was acknowledged. */
  prolonged(prolongation: number, until: number): void {
    if (prolongation >= this.#lastShortened) this.#validUntil = until;
  }

  /** The first has it, for so long. */
  begun(until: number): void {
    this.#validUntil = until;
  }

  /** Nobody else gets the lock from it: those who have not had their turn wait on, in their places in the queue. */
  dissolve(): void {
    this.#validUntil = -Infinity;
    for (const { waiter } of this.#behind.splice(0)) waiter.cohort = undefined;
  }
}
