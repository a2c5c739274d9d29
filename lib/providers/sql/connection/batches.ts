import { nextTick } from '../../../core/toolkit/real-timers.js';

// Three values a row. Postgres takes 65 535 in a statement; beyond a few hundred nothing is gained.
const MOST = 500;

interface Asked<Item, Answer> {
  readonly item: Item;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Sends together what is asked for in one tick, or while as many statements are in flight as there may be. So however many wait, they need few
 * connections.
 */
export class Batches<Item, Answer> {
  #asked: Asked<Item, Answer>[] = [];
  #inFlight = 0;

  constructor(
    /** The answers in the order of the items. */
    private readonly send: (items: readonly Item[]) => Promise<readonly Answer[]>,
    /** How many statements may be in flight. */
    private readonly most: number,
  ) {}

  add(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#asked.push({ item, resolve, reject }) === 1) nextTick(this.#flush);
    });
  }

  readonly #flush = (): void => {
    while (this.#asked.length > 0 && this.#inFlight < this.most) void this.#sendNext(this.#asked.splice(0, MOST));
  };

  async #sendNext(asked: readonly Asked<Item, Answer>[]): Promise<void> {
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
