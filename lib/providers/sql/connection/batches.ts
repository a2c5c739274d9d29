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
    while (this.#asked.length > 0 && this.#inFlight < this.most) this.#sendNext(this.#asked.splice(0, MOST));
  };

  #sendNext(asked: readonly Asked<Item, Answer>[]): void {
    this.#inFlight += 1;
    this.send(asked.map(({ item }) => item)).then(
      (answers) => {
        asked.forEach(({ resolve }, index) => {
          resolve(answers[index] as Answer);
        });
        this.#next();
      },
      (error: unknown) => {
        for (const { reject } of asked) reject(error);
        this.#next();
      },
    );
  }

  #next(): void {
    this.#inFlight -= 1;
    this.#flush();
  }
}
