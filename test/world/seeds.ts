import { callersOf, Dice, POINTS, repeated } from './dice.js';
import type { CallKind, Fault, FaultKind, Habits, Plan } from './plan.js';
import { NESTING, ON_MEMBERS, REDLOCK, type Theme, THEMES } from './themes.js';

const HARMLESS: readonly FaultKind[] = [
  ...(['cut', 'reset', 'stall', 'late-replies', 'late-messages', 'pause', 'slow', 'server-pause'] as const),
  ...(['crash', 'wall-clock', 'restart', 'script-flush'] as const),
  ...(['at-lose-reply', 'at-late-reply', 'at-crash', 'at-pause', 'at-lose-messages', 'at-late-messages'] as const),
];
/** Faults that make the server lose locks, which the guarantees exclude. */
const LOSSES: readonly FaultKind[] = ['flush', 'restart-empty', 'evict', 'switch'];

/** The share of plans whose locks are on a Cluster. */
const ON_CLUSTER = 0.15;
/**
 * The maximum time that one of its masters is unreachable, in ms. After about that time, a real Cluster replaces it or
 * refuses all commands.
 */
const AWAY = 10_000;
/** The share of plans in which callers only nest their locks. */
const NESTED = 0.04;
/** The share of plans whose locks are on the independent nodes of Redlock. */
const ON_REDLOCK = 0.08;
/** The share of plans with a failover provider. */
const WITH_FAILOVER = 0.08;

/** Where the locks are, if not on a single server. */
export type Place = 'cluster' | 'redlock' | 'failover';

/**
 * Creates a plan. Each seed has its own mix (swarm testing): a run in which everything goes wrong at the same time
 * reaches fewer states than many runs in each of which a few things go wrong often.
 *
 * @param chosen the theme. Default: none, or a theme chosen by the seed
 * @param where where the locks are. Default: chosen by the seed
 */
export function planOf(seed: number, chosen?: string, where?: Place): Plan {
  const dice = new Dice(seed, 1);
  const drawn = dice.chance(0.4) ? undefined : dice.pick(Object.keys(THEMES));
  const nestingDice = new Dice(seed, 5);
  const nested = nestingDice.chance(NESTED) ? nestingDice.pick(Object.keys(NESTING)) : drawn;
  // Uses separate dice, so that the seeds of test/mutants stay the same.
  const redlockDice = new Dice(seed, 35);
  const isOnRedlock = redlockDice.chance(ON_REDLOCK);
  const memberDice = new Dice(seed, 37);
  const isOnMembers = memberDice.chance(WITH_FAILOVER);
  const drawnPlace = where ?? (isOnRedlock ? 'redlock' : isOnMembers ? 'failover' : undefined);
  const elsewhere =
    drawnPlace === 'redlock'
      ? redlockDice.pick(Object.keys(REDLOCK))
      : drawnPlace === 'failover'
        ? memberDice.pick(Object.keys(ON_MEMBERS))
        : nested;
  const name = chosen ?? elsewhere;
  const themes: Readonly<Record<string, Theme>> = { ...THEMES, ...NESTING, ...REDLOCK, ...ON_MEMBERS };
  const theme = name === undefined ? undefined : themes[name];
  if (name !== undefined && theme === undefined) throw new Error(`There is no theme "${name}".`);
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
    drift: dice.pick([0, 0.001, 0.008]),
    commandTimeout: dice.pick([300, 1_000, 1_000]),
    faults: faultsOf(dice, processes, duration),
  };
  const themed = { ...plan, ...theme?.(dice, plan) };
  // Uses separate dice, so that all other choices of a seed stay the same.
  const clusterDice = new Dice(seed, 4);
  const isDrawn = clusterDice.chance(ON_CLUSTER);
  const isElsewhere = Boolean(themed.isInMemory ?? themed.redlock ?? themed.failover);
  return !isElsewhere && (where === 'cluster' || isDrawn) ? onCluster(clusterDice, themed) : themed;
}

/** The same plan on a Cluster whose slots migrate now and then. */
function onCluster(dice: Dice, plan: Plan): Plan {
  const { processes, duration } = plan;
  const rates = { every: dice.pick([1_000, 5_000, 20_000]), lasts: dice.pick([20, 300, 2_000]), processes, duration };
  const kinds = dice.pick([['migrate'], ['migrate', 'at-migrate'], ['at-migrate']] as const);
  const migrations = dice.chance(0.8) ? repeated(dice, kinds, rates) : [];
  const shortened = plan.faults.map((fault) =>
    ['server-pause', 'restart', 'restart-empty'].includes(fault.kind)
      ? { ...fault, lasts: Math.min(fault.lasts, AWAY) }
      : fault,
  );
  return { ...plan, masters: dice.pick([2, 3]), faults: [...shortened, ...migrations] };
}

function habitsOf(dice: Dice, lease: number): Habits {
  const some = <T extends string>(weights: Partial<Record<T, number>>, share: number) =>
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
