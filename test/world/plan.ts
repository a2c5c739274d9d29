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
  | 'migrate'
  | 'cut-node'
  | 'at-lose-reply'
  | 'at-late-reply'
  | 'at-crash'
  | 'at-pause'
  | 'at-lose-messages'
  | 'at-late-messages'
  | 'at-migrate'
  | 'at-restart-empty';

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

export type CallKind = 'exclusive' | 'shared' | 'limited' | 'several' | 'nested' | 'ordered' | 'burst';

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

/** A job with ticks, and a leader, in each process. All times in ms. */
export interface PlannedRecipes {
  readonly seed: number;
  readonly lease: number;
  /** Between two ticks of the job. */
  readonly period: number;
  readonly catchUp: number;
  readonly afterCrash: number;
  /** How long a run of the job takes, and how long a leader leads before it resigns. */
  readonly task: number;
  readonly term: number;
}

/** The independent nodes of Redlock. */
export interface PlannedRedlock {
  readonly nodes: 3 | 5;
  /** The longest lease, in ms. */
  readonly maxLease: number;
  readonly delayedRestart: boolean;
  /** By how many ms the wall clocks of the nodes may be wrong. */
  readonly skew: number;
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
  readonly recipes?: PlannedRecipes | undefined;
  /** The locks are in the memory of the one process, and not on a server. */
  readonly isInMemory?: boolean | undefined;
  /** The locks are on a Cluster of so many masters, and not on one server. */
  readonly masters?: number | undefined;
  /** The locks are on independent nodes, and not on one server. */
  readonly redlock?: PlannedRedlock | undefined;
}

/** For how long a process may have a lock that does not answer any more, in ms. */
export function longestHold({ leases, minHolds, minHold, extend }: Habits): number {
  return Math.max(...leases) * (extend > 0 ? 2 : 1) + (minHold > 0 ? Math.max(...minHolds) : 0);
}
