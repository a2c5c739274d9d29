import type { Fault, FaultKind, PlannedCaller } from './plan.js';
import type { Effect } from './redis-model.js';

/** Pseudo-random choices from a seed. */
export class Dice {
  #state: number;

  constructor(...seeds: number[]) {
    this.#state = seeds.reduce((state, seed) => mixed(state ^ seed), 0x811c9dc5);
  }

  /** A number in [0, 1), by mulberry32. */
  fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let bits = this.#state;
    bits = Math.imul(bits ^ (bits >>> 15), bits | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  }

  between(least: number, most: number): number {
    return least + this.fraction() * (most - least);
  }

  whole(count: number): number {
    return Math.floor(this.fraction() * count);
  }

  pick<T>(choices: readonly T[]): T {
    if (choices.length === 0) throw new Error('There are no choices.');
    return choices[this.whole(choices.length)] as T;
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  /** Exponentially distributed: mostly small, and sometimes several times the mean. */
  around(mean: number): number {
    return -mean * Math.log(1 - this.fraction());
  }

  /** One of these, with a probability proportional to its weight. */
  weighted<T extends string>(weights: Readonly<Partial<Record<T, number>>>): T {
    const entries = Object.entries(weights) as [T, number][];
    let rest = this.fraction() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [choice, weight] of entries) {
      rest -= weight;
      if (rest < 0) return choice;
    }
    return (entries.at(-1) as [T, number])[0];
  }
}

/**
 * Each input bit changes about half of the other bits (the finalizer of MurmurHash3), so consecutive seeds differ from
 * the first choice on.
 */
function mixed(input: number): number {
  let bits = input >>> 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

export const POINTS: readonly Effect[] = ['written', 'written', 'deleted', 'prolonged', 'queued', 'announced'];

export function callersOf(dice: Dice, processes: number, each: number): PlannedCaller[] {
  return Array.from({ length: processes * each }, (_, index) => ({
    place: index % processes,
    seed: dice.whole(2 ** 31),
  }));
}

export interface Rates {
  readonly every: number;
  readonly lasts: number;
  readonly processes: number;
  readonly duration: number;
  readonly points?: readonly Effect[];
}

export function repeated(dice: Dice, kinds: readonly FaultKind[], rates: Rates): Fault[] {
  const { every, lasts, processes, duration, points = POINTS } = rates;
  const faults: Fault[] = [];
  for (let at = dice.around(every); at < duration; at += dice.around(every)) {
    faults.push({
      kind: dice.pick(kinds),
      at,
      place: dice.whole(processes),
      lasts: Math.min(dice.around(lasts), duration - at),
      point: dice.pick(points),
      choice: dice.whole(2 ** 31),
    });
  }
  return faults;
}
