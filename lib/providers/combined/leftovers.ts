import { type Member, type ProviderContext } from '../../api/lock-provider.js';
import { pause } from '../../core/toolkit/pause.js';
import type { Holding } from './holding.js';
import type { Part } from './part.js';

// As often as the engine sends a release again when a backend is down for long.
const RETRY_EVERY = 1_000;

interface Leftover {
  readonly holding: Holding;
  readonly part: Part;
}

/**
 * What refused attempts have left in engines that did not confirm its end. Nobody waits for it and nobody else releases it
 * again, so it is given back here, until it is confirmed or its lease is over: meanwhile it keeps others out of that engine.
 */
export class Leftovers {
  readonly #holdings = new Set<Holding>();
  /** Those that are being given something back. */
  readonly #busy = new Set<Member>();
  readonly #end = new AbortController();

  constructor(private readonly context: ProviderContext) {}

  add(holding: Holding): void {
    if (holding.left().length === 0) return;
    this.#holdings.add(holding);
    if (this.#holdings.size === 1) void this.#giveBack();
  }

  stop(): void {
    this.#end.abort();
  }

  async #giveBack(): Promise<void> {
    const { clock, random } = this.context;
    while (this.#holdings.size > 0) {
      await pause(clock, RETRY_EVERY * (0.5 + random.fraction() / 2), this.#end.signal);
      if (this.#end.signal.aborted) return;
      const ofEngines = new Map<Member, Leftover[]>();
      for (const holding of this.#holdings) {
        const left = holding.left();
        if (left.length === 0) this.#holdings.delete(holding);
        for (const part of left) {
          const { engine } = part;
          const leftovers = ofEngines.get(engine) ?? [];
          leftovers.push({ holding, part });
          ofEngines.set(engine, leftovers);
        }
      }
      // Not awaited: an engine that hangs delays what is to be given back to others.
      for (const [engine, leftovers] of ofEngines) void this.#giveBackTo(engine, leftovers);
    }
  }

  /** One after the other, until one is not answered: many callers that are refused leave as many parts in an engine that is down. */
  async #giveBackTo(engine: Member, leftovers: readonly Leftover[]): Promise<void> {
    if (this.#busy.has(engine)) return;
    this.#busy.add(engine);
    for (const { holding, part } of leftovers) {
      const isConfirmed = await holding.giveBack(part);
      if (!isConfirmed) this.#comeLast(holding);
      if (!isConfirmed || this.#end.signal.aborted) break;
    }
    this.#busy.delete(engine);
  }

  /** The next time others are tried before: an engine of which a part is down answers for other keys. */
  #comeLast(holding: Holding): void {
    if (this.#holdings.delete(holding)) this.#holdings.add(holding);
  }
}
