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

/** Runs in which one thing happens again and again, that a mix of everything rarely reaches. */
type Theme = 'retained keys' | 'frozen processes' | 'long outages';

/**
 * Draws a plan. Each seed has its own mix (swarm testing): a run in which everything goes wrong at the same time reaches fewer states than
 * many runs in each of which a few things go wrong often.
 */
export function planOf(seed: number): Plan {
  const dice = new Dice(seed, 1);
  const theme = dice.weighted<Theme | 'none'>({
    ...{ none: 6, 'retained keys': 2, 'frozen processes': 1, 'long outages': 1 },
  });
  const lease = dice.pick([300, 600, 1_500, 6_000, 30_000, 30_000]);
  const processes = dice.pick([2, 2, 3, 4]);
  const perProcess = dice.pick([1, 2, 3, 6]);
  const duration = dice.pick([20_000, 40_000]);
  const plan: Plan = {
    ...{ seed, duration, processes, habits: habitsOf(dice, lease) },
    callers: callersOf(dice, processes, perProcess),
    keys: dice.pick([1, 1, 2, 3]),
    latency: {
      typical: dice.pick([0.2, 0.6, 0.6, 3, 15]),
      slowShare: dice.pick([0, 0.02, 0.1]),
      slow: dice.pick([2, 10, 40]),
    },
    drift: dice.pick([0, 0.001, 0.004]),
    commandTimeout: dice.pick([300, 1_000, 1_000]),
    faults: faultsOf(dice, processes, duration),
  };
  return theme === 'none' ? plan : { ...plan, ...THEMES[theme](dice, plan) };
}

const THEMES: Readonly<Record<Theme, (dice: Dice, plan: Plan) => Partial<Plan>>> = {
  /** Keys stay locked after their tasks, and callers leave before their turn: then others must learn when the keys are free. */
  'retained keys': (dice) => {
    const kinds = dice.pick([{ exclusive: 1 }, { limited: 1 }]);
    // Few, because each that comes later is told when the key is free.
    const processes = 'limited' in kinds ? 4 : 3;
    return {
      ...{ duration: 200_000, processes, callers: callersOf(dice, processes, 1), keys: 1, faults: [] },
      latency: { typical: 0.6, slowShare: 0, slow: 2 },
      habits: {
        ...{
          kinds,
          leases: [6_000],
          waits: [400, 800, 3_000, 3_000],
          limit: 2,
          minHolds: [900, 1_200, 1_600],
          minHold: 1,
        },
        ...{
          pause: dice.pick([300, 1_200]),
          task: 600,
          longTasks: 0,
          maxHold: 0,
          extend: 0,
          abort: dice.pick([0, 0.3]),
        },
      },
    };
  },
  /** Locks are handed to processes that do not answer. */
  'frozen processes': (dice, { habits, duration }) => ({
    ...{ processes: 3, callers: callersOf(dice, 3, 2), keys: 1 },
    faults: repeated(dice, ['pause', 'pause', 'cut', 'at-pause'], {
      every: 7_000,
      lasts: 8_000,
      processes: 3,
      duration,
    }),
    habits: {
      ...habits,
      ...{
        kinds: dice.pick([{ exclusive: 1 }, { exclusive: 2, shared: 1 }, { limited: 1 }]),
        leases: [dice.pick([300, 1_000])],
      },
      ...{ waits: [20_000], pause: 100, task: 60, minHold: 0 },
    },
  }),
  /** What was sent before an outage is executed at its end. */
  'long outages': (dice, { habits, processes }) => ({
    duration: 60_000,
    faults: repeated(dice, ['server-pause', 'stall', 'cut', 'late-replies'], {
      ...{ every: 18_000, lasts: dice.pick([2_000, 12_000]), processes, duration: 60_000 },
    }),
    habits: {
      ...{ ...habits, kinds: { exclusive: 2, shared: 1, limited: 1 }, leases: [30_000], waits: [200, 1_000, 5_000] },
      ...{ minHold: 0, abort: 0.3, pause: 100, longTasks: 0, task: 20 },
    },
  }),
};

function callersOf(dice: Dice, processes: number, each: number): PlannedCaller[] {
  return Array.from({ length: processes * each }, (_, index) => ({
    place: index % processes,
    seed: dice.whole(2 ** 31),
  }));
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
  return repeated(dice, kinds.length > 0 ? kinds : ['reset'], { every, lasts, processes, duration, points });
}

interface Rates {
  readonly every: number;
  readonly lasts: number;
  readonly processes: number;
  readonly duration: number;
  readonly points?: readonly Effect[];
}

function repeated(dice: Dice, kinds: readonly FaultKind[], rates: Rates): Fault[] {
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
