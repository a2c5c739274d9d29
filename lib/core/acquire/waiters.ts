import { LockCapacityError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { Acquisition, Wish } from './acquisition.js';
import type { Attempt } from './attempt.js';
import { HolderTable } from '../toolkit/holder-table.js';
import { nameOf } from '../events/subject.js';

/** A caller on its way to one key of one provider. */
interface Waiter {
  readonly attempt: Attempt;
  readonly acquisition: Acquisition;
}

/** Who waits in this process for the keys of one provider. */
export class Waiters {
  readonly #byHolder = new HolderTable<Waiter>();
  readonly #countOf = new Map<string, number>();
  /** Those who pause before they ask again. */
  readonly #pausing = new Set<Acquisition>();

  constructor(
    /** How many may wait for one key. */
    private readonly limit: number,
  ) {}

  /** @throws LockCapacityError when too many wait for that key already. Asked once a caller: who waits has its room. */
  assertRoom(subject: LockEvent): void {
    const count = this.#countOf.get(subject.key) ?? 0;
    if (count < this.limit) return;
    throw new LockCapacityError(
      `${nameOf(subject)} has ${count} callers waiting in this process already: shed load, shorten "wait", or raise maxWaiters.`,
      subject,
    );
  }

  add(waiter: Waiter): void {
    this.#byHolder.set(waiter.attempt.holder, waiter);
  }

  remove({ holder }: Attempt): void {
    this.#byHolder.delete(holder);
  }

  /** Counts one more (or, with -1, one less) who waits for the key. Who is answered at once is never counted. */
  count(key: string, change: 1 | -1): void {
    const count = (this.#countOf.get(key) ?? 0) + change;
    if (count === 0) this.#countOf.delete(key);
    else this.#countOf.set(key, count);
  }

  get(holder: string): Waiter | undefined {
    return this.#byHolder.get(holder);
  }

  /** Asks again after this pause, which {@link hurry} may end. */
  async pauses(acquisition: Acquisition, pause: Promise<void>): Promise<void> {
    this.#pausing.add(acquisition);
    await pause;
    this.#pausing.delete(acquisition);
  }

  /**
   * The backend answers for the key: whoever pauses before asking for it asks now, first come, first served. Their pauses are of all
   * lengths up to a second, in which whoever came later would be served.
   */
  hurry(key: string): void {
    if (this.#pausing.size === 0) return;
    const late = Array.from(this.#pausing).filter(({ wish }) => wish.subject.key === key);
    late.sort((one, other) => one.wish.startedAt - other.wish.startedAt);
    for (const acquisition of late) acquisition.hurry();
  }

  get wishes(): Wish[] {
    return this.#byHolder.values().map(({ acquisition }) => acquisition.wish);
  }

  /** Sends waiters away: all, or those that hold nothing. */
  dismiss(which: 'all' | 'first-comers', errorFor: (wish: Wish) => Error): void {
    for (const { acquisition } of this.#byHolder.values()) {
      const { wish } = acquisition;
      if (which === 'all' || !wish.around.some((lock) => lock.isHeld())) acquisition.dismiss(errorFor(wish));
    }
  }
}
