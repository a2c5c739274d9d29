import type { Dice } from './dice.js';
import type { Fault, FaultKind, PlannedCaller } from './plan.js';
import type { Effect } from './redis-model.js';

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
