import type { Latency } from './network.js';
import type { Effect } from './redis-model.js';

/**
 * What can go wrong. Faults with `at-` strike at a point of the protocol: when the next command has the effect `point`.
 */
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
  | 'suspend'
  | 'switch-to'
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
  /** The time, in ms of true time. A fault at a point strikes at the first opportunity after it. */
  readonly at: number;
  /** The affected process, if the fault affects one. */
  readonly place: number;
  readonly lasts: number;
  readonly point: Effect;
  /** Determines all further choices. */
  readonly choice: number;
}

export type CallKind = 'exclusive' | 'shared' | 'limited' | 'several' | 'nested' | 'ordered' | 'burst';

/** How callers behave. */
export interface Habits {
  readonly kinds: Readonly<Partial<Record<CallKind, number>>>;
  readonly leases: readonly number[];
  readonly waits: readonly number[];
  readonly limit: number;
  /** The pause between two calls of one caller. */
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

/** A job with ticks and a leader in each process. All times are in ms. */
export interface PlannedRecipes {
  readonly seed: number;
  readonly lease: number;
  /** The time between two ticks of the job. */
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
  /** By how many ms the nodes' wall clocks may be wrong. */
  readonly skew: number;
}

/** Two Redis servers that a failover provider uses, and a third one for its record. */
export interface PlannedFailover {
  /** The `window` of the process in each place, in ms. */
  readonly windows: readonly number[];
  /** By how many ms the wall clock of the second server is behind. */
  readonly behind: number;
}

/** Everything that a seed determines before the run. It can be stored and shrunk. */
export interface Plan {
  readonly seed: number;
  /** For how many ms calls and faults occur. */
  readonly duration: number;
  readonly processes: number;
  readonly callers: readonly PlannedCaller[];
  readonly keys: number;
  readonly habits: Habits;
  readonly latency: Latency;
  /** By which fraction the machines' clocks may be wrong. */
  readonly drift: number;
  readonly commandTimeout: number;
  readonly faults: readonly Fault[];
  readonly recipes?: PlannedRecipes | undefined;
  /** Whether the locks are in the memory of a single process instead of on a server. */
  readonly isInMemory?: boolean | undefined;
  /** The number of masters, if the locks are on a Cluster instead of a single server. */
  readonly masters?: number | undefined;
  /** Set if the locks are on independent nodes instead of a single server. */
  readonly redlock?: PlannedRedlock | undefined;
  /** Set if the locks are on one of two servers, as a failover provider decides. */
  readonly failover?: PlannedFailover | undefined;
}

/** How long an unresponsive process may hold a lock, in ms. */
export function longestHold({ leases, minHolds, minHold, extend }: Habits): number {
  return Math.max(...leases) * (extend > 0 ? 2 : 1) + (minHold > 0 ? Math.max(...minHolds) : 0);
}
