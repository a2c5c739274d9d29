import { Dice } from './dice.js';
import type { Latency } from './network.js';
import type { Effect } from './redis-model.js';

/** What can go wrong. Those with `at-` strike at a point of the protocol: when the next command has the effect `point`. */
export type FaultKind =
  | 'cut'
  | 'reset'
  | 'stall'
  | 'late-replies'
  | 'late-messages'
  | 'pause'
  | 'slow'
  | 'server-pause'
  | 'crash'
  | 'wall-clock'
  | 'restart'
  | 'script-flush'
  | 'flush'
  | 'restart-empty'
  | 'evict'
  | 'switch'
  | 'at-lose-reply'
  | 'at-late-reply'
  | 'at-crash'
  | 'at-pause'
  | 'at-lose-messages'
  | 'at-late-messages';

export interface Fault {
  readonly kind: FaultKind;
  /** In ms of true time. A fault at a point strikes at the first chance after that. */
  readonly at: number;
  /** The process that is hit, where one is. */
  readonly place: number;
  readonly lasts: number;
  readonly point: Effect;
  /** Decides all further choices. */
  readonly choice: number;
}

export type CallKind = 'exclusive' | 'shared' | 'limited' | 'several' | 'nested' | 'burst';

/** How callers call. */
export interface Habits {
  readonly kinds: Readonly<Partial<Record<CallKind, number>>>;
  readonly leases: readonly number[];
  readonly waits: readonly number[];
  readonly limit: number;
  /** Pause between two calls of one caller. */
  readonly pause: number;
  readonly task: number;
  /** The share of tasks that take about as long as a lease. */
  readonly longTasks: number;
  readonly minHolds: readonly number[];
  readonly minHold: number;
  readonly maxHold: number;
  readonly extend: number;
  readonly abort: number;
}

export interface PlannedCaller {
  readonly place: number;
  readonly seed: number;
}

/** All that a seed decides before the run. It can be stored, and made smaller. */
export interface Plan {
  readonly seed: number;
  /** For how many ms there are calls and faults. */
  readonly duration: number;
  readonly processes: number;
  readonly callers: readonly PlannedCaller[];
  readonly keys: number;
  readonly habits: Habits;
  readonly latency: Latency;
  /** By which share the clocks of machines may be wrong. */
  readonly drift: number;
  readonly commandTimeout: number;
  readonly faults: readonly Fault[];
}

const HARMLESS: readonly FaultKind[] = [
  ...(['cut', 'reset', 'stall', 'late-replies', 'late-messages', 'pause', 'slow', 'server-pause'] as const),
  ...(['crash', 'wall-clock', 'restart', 'script-flush'] as const),
  ...(['at-lose-reply', 'at-late-reply', 'at-crash', 'at-pause', 'at-lose-messages', 'at-late-messages'] as const),
];
/** The server forgets locks, which the guarantees except. */
const LOSSES: readonly FaultKind[] = ['flush', 'restart-empty', 'evict', 'switch'];
const POINTS: readonly Effect[] = ['written', 'written', 'deleted', 'prolonged', 'queued', 'announced'];

/**
 * Draws a plan. Each seed has its own mix (swarm testing): a run in which everything goes wrong at the same time reaches fewer states than
 * many runs in each of which a few things go wrong often.
 */
export function planOf(seed: number): Plan {
  const dice = new Dice(seed, 1);
  const lease = dice.pick([300, 600, 1_500, 6_000, 30_000, 30_000]);
  const processes = dice.pick([2, 2, 3, 4]);
  const perProcess = dice.pick([1, 2, 3, 6]);
  const duration = dice.pick([20_000, 40_000]);
  const isOfRetained = dice.chance(0.1);
  const habits = { ...habitsOf(dice, lease), ...(isOfRetained && retaining(dice)) };
  return {
    ...{ seed, duration, processes, habits },
    callers: Array.from({ length: processes * perProcess }, (_, index) => ({
      place: index % processes,
      seed: dice.whole(2 ** 31),
    })),
    keys: dice.pick([1, 1, 2, 3]),
    latency: {
      typical: dice.pick([0.2, 0.6, 0.6, 3, 15]),
      slowShare: dice.pick([0, 0.02, 0.1]),
      slow: dice.pick([2, 10, 40]),
    },
    drift: dice.pick([0, 0.001, 0.004]),
    commandTimeout: dice.pick([300, 1_000, 1_000]),
    faults: isOfRetained ? [] : faultsOf(dice, processes, duration),
  };
}

/** Callers of keys that stay locked after short tasks, who often leave before their turn: then others must learn when the keys are free. */
function retaining(dice: Dice): Partial<Habits> {
  return {
    kinds: dice.pick([{ exclusive: 1 }, { limited: 1 }, { exclusive: 3, shared: 1 }]),
    ...{ leases: [6_000], waits: [150, 400, 1_000, 3_000], minHolds: [300, 600, 900], minHold: 1, maxHold: 0 },
    ...{ pause: dice.pick([100, 500]), task: 2, longTasks: 0, extend: 0, abort: dice.pick([0, 0.3]) },
  };
}

function habitsOf(dice: Dice, lease: number): Habits {
  const some = <T extends string>(weights: Record<T, number>, share: number) =>
    Object.fromEntries(Object.entries(weights).filter(() => dice.chance(share))) as Partial<Record<T, number>>;
  const kinds = some<CallKind>({ exclusive: 4, shared: 3, limited: 3, several: 2, nested: 1, burst: 2 }, 0.4);
  const rarely = (share: number, often: readonly number[]) => (dice.chance(share) ? dice.pick(often) : 0);
  return {
    kinds: Object.keys(kinds).length > 0 ? kinds : { exclusive: 1 },
    leases: dice.chance(0.7) ? [lease] : [lease, Math.max(100, lease / 3)],
    waits: dice.pick([
      [0, 50, 1_000, 5_000, 20_000],
      [5_000, 20_000],
      [200, 1_000],
      [0, 20_000],
    ]),
    limit: dice.pick([2, 3]),
    pause: dice.pick([20, 100, 500, 2_000]),
    task: dice.pick([2, 20, 60, 300]),
    longTasks: dice.pick([0, 0.03, 0.2]),
    minHolds: dice.pick([[200], [400, 900], [3_000], [700, 8_000]]),
    minHold: rarely(0.35, [0.1, 0.5, 1]),
    maxHold: rarely(0.2, [0.1, 0.4]),
    extend: rarely(0.3, [0.2, 0.8]),
    abort: rarely(0.4, [0.1, 0.4]),
  };
}

function faultsOf(dice: Dice, processes: number, duration: number): Fault[] {
  if (dice.chance(0.25)) return [];
  const every = dice.pick([300, 1_000, 3_000, 8_000, 15_000]);
  const lasts = dice.pick([100, 500, 1_500, 4_000, 12_000]);
  const share = dice.pick([0.1, 0.25, 0.5]);
  const kinds = [...HARMLESS.filter(() => dice.chance(share)), ...(dice.chance(0.2) ? [dice.pick(LOSSES)] : [])];
  const points = dice.chance(0.5) ? [dice.pick(POINTS)] : POINTS;
  const faults: Fault[] = [];
  for (let at = dice.around(every); at < duration; at += dice.around(every)) {
    faults.push({
      kind: kinds.length > 0 ? dice.pick(kinds) : 'reset',
      at,
      place: dice.whole(processes),
      lasts: Math.min(dice.around(lasts), duration - at),
      point: dice.pick(points),
      choice: dice.whole(2 ** 31),
    });
  }
  return faults;
}
