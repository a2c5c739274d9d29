import { nextTick } from '../../../core/toolkit/real-timers.js';

// A row has up to three values, and Postgres allows 65,535 values per statement. Going beyond a few hundred rows gains
// nothing.
const MOST = 500;

interface PendingItem<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Combines items that are added in the same tick, or while the maximum number of statements is in flight, so any number
 * of waiters needs only a few connections.
 */
export class Batches<Item, Answer> {
  #pending: PendingItem<Item, Answer>[] = [];
  #inFlight = 0;

  constructor(
    /** Resolves to the answers, in the items' order. */
    private readonly send: (items: readonly Item[]) => Promise<readonly Answer[]>,
    /** The maximum number of statements in flight. */
    private readonly most: number,
  ) {}

  add(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#pending.push({ item, resolve, reject }) === 1) nextTick(this.#flush);
    });
  }

  readonly #flush = (): void => {
    while (this.#pending.length > 0 && this.#inFlight < this.most) void this.#sendNext(this.#pending.splice(0, MOST));
  };

  async #sendNext(asked: readonly PendingItem<Item, Answer>[]): Promise<void> {
    this.#inFlight += 1;
    try {
      const answers = await this.send(asked.map(({ item }) => item));
      for (const [index, { resolve }] of asked.entries()) resolve(answers[index] as Answer);
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
    this.#inFlight -= 1;
    this.#flush();
  }
}
