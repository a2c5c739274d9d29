import type { LossReason } from './errors.js';
import type { LockHolder } from './lock-holder.js';
import type { LockMode } from './lock-mode.js';

/** The fields of every event about a lock. Never a holder id. Every event has a JSON form, with its fencing token as text. */
export interface LockEvent {
  readonly key: string;
  readonly provider: string;
  readonly mode: LockMode;
  /** The decorated method, such as `OrderService.pay`, or `null` for a lock that was taken through `LockService`. */
  readonly method: string | null;
  /** The key template of the decorated method, for labels of bounded cardinality, or `null`. */
  readonly template: string | null;
}

/**
 * Why the term of a leader ended.
 *
 * - `task-ended`: its task ended by itself, with or without an error.
 * - `lost`: its lock was lost.
 * - `signal`: the `signal` of `runAsLeader` aborted.
 * - `shutdown`: the application stopped.
 */
export type ResignReason = 'task-ended' | 'lost' | 'signal' | 'shutdown';

/**
 * Why a call or a job did not run.
 *
 * - `done`: the tick of the job was begun before, here or in another process.
 * - `overlap`: a run of an earlier tick of the job has not ended.
 * - `clock`: the tick is later than the time of the server: the clock of this process is ahead, or `due` is in the future.
 * - `busy`: its lock was busy.
 * - `not-leader`: another process leads (`@OnlyLeader`).
 */
export type SkipReason = 'done' | 'overlap' | 'clock' | 'busy' | 'not-leader';

/** The fields of every event about a tick of a job. */
export interface TickEvent {
  /** The key of the job. */
  readonly key: string;
  readonly provider: string;
  /** When the job was due. */
  readonly tick: Date;
}

/** The events by name, with what each carries. All lengths of time are in whole ms. */
export interface LockEventMap {
  /** The lock is busy and the caller queues for it. */
  waiting: LockEvent;
  /** A lock was granted by the backend (a nested entry is none). */
  acquired: LockEvent & { readonly waited: number; readonly fencingToken: bigint | null };
  /** A release was confirmed. */
  released: LockEvent & { readonly held: number };
  /** A lease was renewed. */
  renewed: LockEvent & { readonly remaining: number };
  /** A renewal was not answered. The lock stays held until its deadline, and the renewal is sent again. */
  'renewal-failed': LockEvent & { readonly remaining: number };
  /** A lock was lost. */
  lost: LockEvent & { readonly held: number; readonly reason: LossReason };
  /** A lock stayed busy for the whole wait. `heldBy`: the holder that kept the caller out, or `null` where that is not known. */
  busy: LockEvent & { readonly waited: number; readonly heldBy: LockHolder | null };
  /**
   * A call or a job did not run: its lock was busy (`onBusy: 'skip'`, `@RunOnce`, `runOnce()`), its tick was begun before, or another process
   * leads (`@OnlyLeader`).
   */
  skipped: LockEvent & { readonly reason: SkipReason };
  /**
   * No process has run a job for a tick that was due. The process that publishes this runs it now, unless the tick is older than `catchUp`: then
   * each process publishes it that looks for missed ticks.
   */
  'run-missed': TickEvent & { readonly schedule: string };
  /** A run of a job has lost its process or its lock: its record says that it runs, and its lock is free. */
  'run-abandoned': TickEvent & {
    /** The instance that began it. */
    readonly instance: string;
    readonly begunAt: Date;
    /** Whether the process that publishes this begins the run again (`afterCrash`). */
    readonly again: boolean;
  };
  /** This process became the leader of the key. `waited`: since it began to campaign for this term. */
  elected: LockEvent & { readonly waited: number; readonly fencingToken: bigint | null };
  /** A term of this process has ended, its task as well. `ledFor`: from the election until the lock was lost or given back. */
  resigned: LockEvent & { readonly reason: ResignReason; readonly ledFor: number };
  /** A release was not answered; it is retried in the background. */
  'release-pending': LockEvent;
  /** `forceRelease` was answered, in the process that called it. The process that held the lock publishes `lost` with the reason `revoked`. */
  'force-released': {
    readonly key: string;
    readonly provider: string;
    /** Whether the key was held or retained (`minHold`). */
    readonly wasLocked: boolean;
  };
  /** A provider's backend does not answer. Published once, until it has answered again. `cause` is a copy of the error without passwords and holder ids. */
  unavailable: { readonly provider: string; readonly cause: unknown };
  /** A provider that is built on several others uses another one of them from now on. */
  failover: {
    readonly provider: string;
    /** The name of the provider that grants locks now. */
    readonly to: string;
    readonly epoch: number;
    readonly reason: 'failure' | 'failback' | 'manual';
  };
}

export type LockEventName = keyof LockEventMap;
export type LockEventListener<N extends LockEventName> = (event: LockEventMap[N]) => void;

/** The events of the locks of one application. A listener that throws is logged and disturbs nothing. */
export interface LockEvents {
  on<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
  once<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
  off<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
}
