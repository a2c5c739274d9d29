import { callersOf, type Dice, repeated } from './dice.js';
import { memberLeaseOf } from './failover-judge.js';
import { type Fault, type FaultKind, type Habits, longestHold, type Plan } from './plan.js';

export type Theme = (dice: Dice, plan: Plan) => Partial<Plan>;

/** For runs in which only the theme of the run occurs. */
const QUIET = { minHold: 0, maxHold: 0, extend: 0, abort: 0, longTasks: 0 };
const STEADY = { typical: 0.6, slowShare: 0, slow: 2 };

/** Callers that hold one key and wait for another. */
const nesting =
  (kind: 'nested' | 'ordered'): Theme =>
  (dice, { habits }) => {
    const duration = 200_000;
    const processes = dice.pick([2, 3, 4]);
    const faults = dice.pick([[], ['cut', 'reset'], ['pause'], ['crash', 'restart'], ['at-lose-reply']] as const);
    return {
      ...{ duration, processes, callers: callersOf(dice, processes, dice.pick([1, 2, 4])), keys: dice.pick([2, 3, 6]) },
      ...{ latency: STEADY, commandTimeout: 1_000 },
      faults: faults.length === 0 ? [] : repeated(dice, faults, { every: 10_000, lasts: 600, processes, duration }),
      habits: { ...habits, ...QUIET, kinds: { [kind]: 1 }, leases: [6_000], pause: dice.pick([10, 100]), task: 50 },
    };
  };

/** Runs in which one thing occurs repeatedly that a mix of everything rarely reaches. */
export const THEMES: Readonly<Record<string, Theme>> = {
  /**
   * Keys stay locked after their tasks, and callers leave before their turn. Other callers must then learn when the
   * keys are free.
   */
  'retained keys': (dice, { habits }) => {
    const kinds = dice.pick([{ exclusive: 1 }, { limited: 1 }, { limited: 1 }]);
    // Few processes, because each one that arrives later is notified when the key is free.
    const processes = 'limited' in kinds ? 4 : 3;
    return {
      ...{ duration: 200_000, processes, callers: callersOf(dice, processes, 1), keys: 1, faults: [], latency: STEADY },
      habits: {
        ...{ ...habits, ...QUIET, kinds, leases: [6_000], waits: [400, 800, 3_000, 3_000], limit: 2, task: 600 },
        ...{ minHolds: [900, 1_200, 1_600], minHold: 1, pause: dice.pick([300, 1_200]), abort: dice.pick([0, 0.3]) },
      },
    };
  },
  /** Processes crash while their keys must stay locked for longer than their leases. */
  'crashes of retained keys': (dice, { habits }) => {
    const duration = 40_000;
    return {
      ...{ duration, processes: 3, callers: callersOf(dice, 3, 2), keys: 1, latency: STEADY },
      faults: repeated(dice, ['crash'], { every: 900, lasts: 300, processes: 3, duration }),
      habits: {
        ...{ ...habits, ...QUIET, kinds: dice.pick([{ exclusive: 1 }, { exclusive: 1, shared: 2 }]), leases: [300] },
        ...{ waits: [8_000], minHolds: [2_500], minHold: 1, pause: 100, task: 1_000 },
      },
    };
  },
  /** Locks are handed off to unresponsive processes. */
  'frozen processes': (dice, { habits, duration }) => ({
    ...{ processes: 3, callers: callersOf(dice, 3, 3), keys: 2, latency: STEADY },
    faults: repeated(dice, ['pause', 'pause', 'cut', 'at-pause'], {
      ...{ every: 7_000, lasts: 8_000, processes: 3, duration },
    }),
    habits: {
      ...{
        ...habits,
        kinds: dice.pick([{ exclusive: 1 }, { exclusive: 1 }, { exclusive: 2, shared: 1 }, { limited: 1 }]),
      },
      ...{ leases: [dice.pick([300, 1_000])], waits: [20_000], pause: 30, task: 150, minHold: 0, limit: 2 },
    },
  }),
  /** What was sent before an outage is executed at its end. */
  'long outages': (dice, { habits, processes }) => {
    const rates = dice.pick([
      { every: 18_000, lasts: dice.pick([2_000, 12_000]), duration: 60_000 },
      // Longer than any lease.
      { every: 60_000, lasts: 45_000, duration: 150_000 },
    ]);
    return {
      duration: rates.duration,
      faults: repeated(dice, ['server-pause', 'server-pause', 'stall', 'cut', 'late-replies'], { ...rates, processes }),
      habits: {
        ...{ ...habits, kinds: { exclusive: 2, shared: 1, limited: 1 }, leases: [30_000], waits: [200, 1_000, 5_000] },
        ...{ minHold: 0, abort: 0.3, pause: 300, longTasks: 0, task: 20 },
      },
    };
  },
  /** Connections fall silent for a long time, while new ones work. */
  'silent connections': (dice, { habits }) => ({
    ...{ duration: 100_000, processes: 2, callers: callersOf(dice, 2, 2), keys: 1, latency: STEADY },
    faults: repeated(dice, ['stall', 'late-replies'], {
      every: 30_000,
      lasts: 30_000,
      processes: 2,
      duration: 100_000,
    }),
    habits: { ...habits, ...QUIET, kinds: { exclusive: 1 }, leases: [30_000], waits: [2_000], pause: 500, task: 200 },
  }),
  /**
   * Processes are cut off for longer than their leases, and their clocks are as wrong as allowed. Other holds reach
   * their maximum time.
   */
  'cut off': (dice, { habits }) => ({
    ...{ duration: 100_000, processes: 2, callers: callersOf(dice, 2, 1), keys: 2, latency: STEADY, drift: 0.0095 },
    faults: repeated(dice, ['cut'], { every: 12_000, lasts: 12_000, processes: 2, duration: 100_000 }),
    habits: {
      ...habits,
      ...QUIET,
      kinds: { exclusive: 1 },
      leases: [6_000],
      waits: [5_000],
      pause: 200,
      task: 8_000,
      maxHold: 0.3,
    },
  }),
  /** Replies to renewals and confirmations are late, and leases change in the meantime. */
  'late answers': (dice, { habits }) => {
    const duration = 30_000;
    return {
      ...{ duration, processes: 3, callers: callersOf(dice, 3, 2), keys: dice.pick([1, 3]), commandTimeout: 1_000 },
      latency: { typical: 15, slowShare: 0.1, slow: 40 },
      faults: repeated(dice, ['at-late-reply', 'at-late-reply', 'at-lose-reply'], {
        ...{ every: 400, lasts: 500, processes: 3, duration, points: ['prolonged', 'prolonged', 'written'] },
      }),
      habits: {
        ...{ ...habits, ...QUIET, kinds: { exclusive: 1 }, leases: [dice.pick([300, 1_500])], waits: [20_000] },
        ...{ minHolds: [50], minHold: 0.5, extend: 0.7, pause: 50, task: 300 },
      },
    };
  },
  /** A replica takes over while the master hangs, and callers keep making requests. */
  failovers: (dice, { habits }) => {
    const duration = 20_000;
    return {
      ...{ duration, processes: 3, callers: callersOf(dice, 3, 2), keys: 1, latency: STEADY, commandTimeout: 300 },
      faults: repeated(dice, ['switch'], { every: 3_000, lasts: 800, processes: 3, duration }),
      habits: {
        ...{ ...habits, ...QUIET, kinds: { exclusive: 1 }, leases: [6_000], waits: [0, 1_000, 20_000] },
        ...{ pause: 100, task: 20 },
      },
    };
  },
  /** One process keeps its locks in memory. Its clock is correct, so its tokens show when a lock was granted. */
  'in memory': (dice, { habits, duration }) => ({
    ...{ isInMemory: true, processes: 1, callers: callersOf(dice, 1, 8), drift: 0 },
    faults: dice.chance(0.5) ? [] : repeated(dice, ['pause'], { every: 5_000, lasts: 1_500, processes: 1, duration }),
    habits: { ...habits, task: dice.pick([2, 20, 300]) },
  }),
  /** All processes schedule one job, campaign for one leadership, and crash. */
  'jobs and leaders': (dice, { habits, seed }) => {
    const duration = 200_000;
    const lease = dice.pick([600, 3_000]);
    const kinds = dice.pick([
      ['crash'],
      ['crash', 'pause', 'cut', 'wall-clock'],
      ['restart', 'flush', 'pause'],
    ] as const);
    return {
      ...{ duration, processes: 3, callers: callersOf(dice, 3, 1), latency: STEADY },
      faults: repeated(dice, kinds, {
        every: dice.pick([3_000, 30_000, 30_000]),
        lasts: 1_500,
        processes: 3,
        duration,
      }),
      habits: { ...habits, ...QUIET, kinds: { exclusive: 1 }, leases: [lease], pause: 2_000 },
      recipes: {
        ...{ seed, lease, catchUp: 10_000, afterCrash: dice.whole(3), term: dice.pick([3_000, 30_000]) },
        ...dice.pick([
          { period: 1_000, task: 50 },
          { period: 3_000, task: 400 },
          { period: 60_000, task: 30_000 },
        ]),
      },
    };
  },
  /** Locks change hands faster than the server's clock counts µs, so tokens run ahead of it. */
  'fast network': (dice, { habits }) => {
    const duration = 20;
    return {
      ...{ duration, processes: 2, callers: callersOf(dice, 2, 8), keys: 1 },
      latency: { typical: 0.002, slowShare: 0, slow: 1 },
      faults: repeated(dice, ['restart-empty'], { every: 8, lasts: 1, processes: 2, duration }),
      habits: {
        ...{ ...habits, ...QUIET, kinds: { exclusive: 1 }, leases: [30_000], waits: [20_000], pause: 0, task: 0 },
      },
    };
  },
};

/** Themes for nested locks. They were added later, so seeds choose them with separate dice. */
export const NESTING: Readonly<Record<string, Theme>> = {
  /** Cycles arise constantly, and each must be refused. */
  'nested in any order': nesting('nested'),
  /** No cycle can arise, so no caller may be refused. */
  'nested in one order': nesting('ordered'),
};

/**
 * A fleet on independent nodes, with exclusive locks. The clocks of processes and nodes drift apart by less than 1 %.
 */
function onNodes(
  dice: Dice,
  { processes, duration }: Plan,
  habits: Habits,
  faults: { kinds: readonly FaultKind[]; every: number; lasts: number } | undefined,
): Partial<Plan> {
  const nodes = dice.pick([3, 3, 5] as const);
  const kinds = dice.pick([{ exclusive: 1 }, { exclusive: 2, burst: 1 }, { exclusive: 2, ordered: 1 }]);
  return {
    ...{ processes, duration, habits: { ...habits, kinds } },
    faults: faults ? repeated(dice, faults.kinds, { ...faults, processes, duration }) : [],
    latency: dice.pick([
      STEADY,
      { typical: 0.2, slowShare: 0.02, slow: 10 },
      { typical: 3, slowShare: 0.02, slow: 10 },
    ]),
    drift: dice.pick([0, 0.001, 0.0045]),
    redlock: {
      nodes,
      maxLease: longestHold(habits),
      delayedRestart: dice.chance(0.4),
      skew: dice.pick([0, 5_000]),
    },
  };
}

/** Faults that may affect single nodes. */
const AT_NODES = [
  ...(['cut-node', 'stall', 'late-replies', 'server-pause', 'restart', 'script-flush'] as const),
  ...(['at-lose-reply', 'at-late-reply', 'at-restart-empty', 'restart-empty'] as const),
];

/** Themes for independent nodes. They were added later, too. */
export const REDLOCK: Readonly<Record<string, Theme>> = {
  /** Everything that a minority or a majority of the nodes depends on may fail. */
  'nodes and processes fail': (dice, plan) => {
    const kinds = [...AT_NODES, 'cut', 'reset', 'pause', 'slow', 'crash', 'at-crash', 'at-pause'] as const;
    const chosen = kinds.filter(() => dice.chance(0.3));
    return onNodes(
      dice,
      plan,
      { ...plan.habits, leases: [dice.pick([600, 1_500, 6_000])] },
      chosen.length === 0
        ? undefined
        : { kinds: chosen, every: dice.pick([300, 1_000, 3_000, 8_000]), lasts: dice.pick([100, 500, 4_000]) },
    );
  },
  /** One node fails in all ways, which no caller may notice. */
  'one node fails': (dice, plan) => {
    const habits = { ...plan.habits, leases: [dice.pick([3_000, 6_000])], maxHold: 0, longTasks: 0.2 };
    const kinds = AT_NODES.filter(() => dice.chance(0.5));
    const rates = { kinds: kinds.length > 0 ? kinds : AT_NODES, every: dice.pick([300, 1_500]), lasts: 500 };
    const drawn = onNodes(dice, plan, habits, rates);
    const node = dice.whole(3);
    const { redlock, faults = [] } = drawn;
    const nodes = redlock?.nodes ?? 3;
    return {
      ...drawn,
      faults: faults.map((fault) => ({ ...fault, choice: fault.choice - (fault.choice % nodes) + node })),
    };
  },
  /** Nodes lose their data in turn, each after the previous one has regained votes. Long holds outlast that. */
  'nodes lose their data in turn': (dice, plan) => {
    const duration = 100_000;
    const habits = { ...plan.habits, ...QUIET, leases: [3_000], waits: [20_000], pause: 500, task: 20_000 };
    const first = dice.whole(5);
    const faults = [1, 2, 3, 4, 5, 6].map((turn): Fault => ({
      ...{ kind: 'restart-empty', at: 14_000 * turn, place: 0, lasts: 300, point: 'written', choice: first + turn },
    }));
    return { ...onNodes(dice, plan, habits, undefined), duration, keys: 1, faults };
  },
  /** A node loses its data just after another was unreachable or lost its own data. */
  'two nodes fail': (dice, plan) => {
    const { processes, duration } = plan;
    const kinds = dice.pick([['restart-empty'], ['restart-empty'], ['restart'], ['server-pause']] as const);
    const lasts = kinds[0] === 'restart-empty' ? 100 : 1_500;
    const pairs = repeated(dice, kinds, { every: 6_000, lasts, processes, duration }).flatMap((fault) => [
      fault,
      {
        ...{ ...fault, kind: dice.pick(['restart-empty', 'at-restart-empty'] as const), lasts: dice.around(100) },
        ...{ at: fault.at + fault.lasts + dice.around(50), choice: fault.choice + 1 },
      },
    ]);
    const habits = { ...plan.habits, ...QUIET, leases: [3_000], longTasks: 0.3 };
    return { ...onNodes(dice, plan, habits, undefined), faults: pairs, keys: dice.pick([1, 2, 3]) };
  },
  /** Locks change hands faster than clocks count µs, and the callers of one process have blocks of tokens. */
  'fast nodes': (dice, plan) => {
    const duration = 5;
    const habits = { ...plan.habits, ...QUIET, leases: [30_000], waits: [20_000], pause: 0, task: 0 };
    return {
      ...{ ...onNodes(dice, plan, habits, undefined), duration, processes: 2, callers: callersOf(dice, 2, 8), keys: 2 },
      latency: { typical: 0.002, slowShare: dice.pick([0, 0.1]), slow: 1 },
    };
  },
  /** Replies of single nodes arrive after the decision, so votes count late, are lost, and are requested again. */
  'late votes': (dice, plan) => {
    const rates = {
      kinds: ['at-late-reply', 'late-replies', 'stall', 'at-restart-empty'] as const,
      ...{ every: dice.pick([100, 400]), lasts: dice.pick([20, 150]) },
    };
    const habits = { ...plan.habits, leases: [dice.pick([600, 1_500])], longTasks: 0.3 };
    return { ...onNodes(dice, plan, habits, rates), keys: 1 };
  },
};

/** A fleet with a failover provider on two servers, and its record on a third. */
function onMembers(
  dice: Dice,
  { habits }: Plan,
  { processes, duration }: { processes: number; duration: number },
  faults: readonly Fault[],
): Partial<Plan> {
  const window = dice.pick([1_000, 2_000, 3_000]);
  // During a deployment that changes the window, processes have different ones.
  const isChanging = dice.chance(0.3);
  const windows = Array.from({ length: processes }, () => (isChanging && dice.chance(0.5) ? 2 * window : window));
  const failover = { windows, behind: dice.pick([0, 5_000]) };
  const kinds = dice.pick([{ exclusive: 1 }, { exclusive: 2, shared: 1 }, { exclusive: 2, burst: 1, ordered: 1 }]);
  return {
    ...{ processes, duration, failover, faults, callers: callersOf(dice, processes, dice.pick([1, 2])) },
    habits: {
      ...{ ...habits, ...QUIET, kinds, leases: [memberLeaseOf(failover)], waits: [0, 2_000, 20_000] },
      ...{ longTasks: dice.pick([0, 0.1, 0.4]), pause: dice.pick([100, 500]), task: dice.pick([20, 300]) },
      abort: dice.pick([0, 0, 0.2]),
    },
    keys: dice.pick([1, 1, 2]),
    latency: dice.pick([
      STEADY,
      { typical: 0.2, slowShare: 0.02, slow: 10 },
      { typical: 3, slowShare: 0.02, slow: 10 },
    ]),
    drift: dice.pick([0, 0.001, 0.0045]),
    commandTimeout: dice.pick([300, 1_000]),
  };
}

/** The servers of a failover provider: a fault strikes the one whose number is its choice, modulo 3. */
const [PREFERRED, STANDBY, RECORD] = [0, 1, 2];
/** Faults that a server with the record doesn't survive. */
const OF_MEMBERS: readonly FaultKind[] = ['restart-empty', 'at-restart-empty', 'flush', 'evict'];

/** The shortest suspension that a process notices, in ms. */
const SUSPENSION = 2_100;

/** The same fault at this server, or at another one if the record would be lost. */
function at(server: number, fault: Fault): Fault {
  const { kind, choice, lasts } = fault;
  const struck = server === RECORD && OF_MEMBERS.includes(kind) ? PREFERRED : server;
  return { ...fault, choice: choice - (choice % 3) + struck, lasts: kind === 'suspend' ? SUSPENSION + lasts : lasts };
}

/** Themes for a failover provider. They were added later, too. */
export const ON_MEMBERS: Readonly<Record<string, Theme>> = {
  /** Everything may fail, in any order. */
  'members and processes fail': (dice, plan) => {
    const [processes, duration] = [dice.pick([2, 3, 4]), 60_000];
    const kinds = [
      ...([...AT_NODES, 'server-pause', 'flush', 'evict', 'switch-to'] as const),
      ...(['cut', 'reset', 'pause', 'suspend', 'slow', 'late-messages', 'crash', 'at-crash', 'at-pause'] as const),
    ].filter(() => dice.chance(0.3));
    const rates = { every: dice.pick([500, 2_000, 5_000]), lasts: dice.pick([300, 1_500, 5_000]), processes, duration };
    const faults = repeated(dice, kinds.length > 0 ? kinds : ['switch-to'], rates);
    return onMembers(
      dice,
      plan,
      { processes, duration },
      faults.map((fault) => at(dice.pick([PREFERRED, PREFERRED, STANDBY, RECORD]), fault)),
    );
  },
  /** The preferred member fails for long, and locks must soon be granted by the other one. */
  'the preferred member fails': (dice, plan) => {
    const [processes, duration] = [dice.pick([2, 3]), 200_000];
    const rates = { every: 40_000, lasts: dice.pick([4_000, 12_000]), processes, duration };
    const kinds = dice.pick([['server-pause'], ['restart'], ['server-pause', 'restart', 'restart-empty']] as const);
    const faults = repeated(dice, kinds, rates);
    return onMembers(
      dice,
      plan,
      { processes, duration },
      faults.map((fault) => at(PREFERRED, fault)),
    );
  },
  /** The standby fails in all ways, and the record for less than half a window, which no caller may notice. */
  'the standby and the record fail': (dice, plan) => {
    const [processes, duration] = [dice.pick([2, 3]), 100_000];
    const kinds = AT_NODES.filter(() => dice.chance(0.5));
    const atStandby = repeated(dice, [...kinds, 'server-pause'], { every: 4_000, lasts: 1_500, processes, duration });
    const atRecord = repeated(dice, ['server-pause'], { every: 30_000, lasts: 400, processes, duration });
    return onMembers(dice, plan, { processes, duration }, [
      ...(dice.chance(0.7) ? atStandby.map((fault) => at(STANDBY, fault)) : []),
      ...(dice.chance(0.7) ? atRecord.map((fault) => at(RECORD, { ...fault, lasts: Math.min(400, fault.lasts) })) : []),
    ]);
  },
  /** Some processes can't reach a server that the others still reach. */
  'some are cut off': (dice, plan) => {
    const [processes, duration] = [dice.pick([3, 4]), 100_000];
    const rates = { every: dice.pick([5_000, 25_000]), lasts: dice.pick([2_000, 8_000]), processes, duration };
    const cuts = repeated(dice, ['cut-node', 'cut-node', 'cut-node', 'suspend', 'pause'], rates).flatMap((fault) => {
      const struck = at(dice.pick([PREFERRED, PREFERRED, STANDBY, RECORD]), fault);
      if (fault.kind !== 'cut-node') return [struck];
      const places = Array.from({ length: processes }, (_, place) => place).filter(() => dice.chance(0.5));
      return [fault.place, ...places].map((place) => ({ ...struck, place }));
    });
    return onMembers(dice, plan, { processes, duration }, cuts);
  },
  /** An operator switches while the other processes, whose last write was just executed, can't learn of that. */
  'an operator switches': (dice, plan) => {
    const [processes, duration] = [dice.pick([2, 2, 3]), 60_000];
    const drawn = onMembers(dice, plan, { processes, duration }, []);
    const { habits = plan.habits, failover } = drawn;
    const window = Math.max(...(failover?.windows ?? []));
    const rates = { every: 3 * window, lasts: 0, processes, duration };
    const faults = repeated(dice, ['switch-to'], rates).flatMap((fault) => {
      const lateness = dice.between(0, 0.45 * window);
      const from = fault.at - dice.between(0, lateness);
      const kinds = dice.pick([[], ['late-replies', 'cut-node'], ['late-replies', 'suspend'], ['suspend', 'cut-node']]);
      const others = Array.from({ length: processes }, (_, place) => place).filter((place) => place !== fault.place);
      const struck = others.flatMap((place) =>
        kinds.map((kind) => {
          const start = kind === 'cut-node' ? from + lateness + 5 : from;
          return at(RECORD, {
            ...{ ...fault, place, kind: kind as FaultKind },
            ...{ at: kind === 'suspend' ? from + dice.between(0, lateness) : start },
            lasts: kind === 'late-replies' ? lateness : 2 * window + (kinds.includes('suspend') ? SUSPENSION : 0),
          });
        }),
      );
      return [fault, ...struck];
    });
    return {
      ...{ ...drawn, faults, keys: 1, callers: callersOf(dice, processes, 3) },
      habits: { ...habits, longTasks: 0, task: 1.5 * window, abort: 0, pause: 50, waits: [20_000] },
    };
  },
};
