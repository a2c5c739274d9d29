import type { LossReason } from './errors.js';
import type { LockHolder } from './lock-holder.js';
import type { LockMode } from './lock-mode.js';

/**
 * The fields of every lock event. An event never contains a holder id. In its JSON form, the fencing token is a string.
 */
export interface LockEvent {
  readonly key: string;
  readonly provider: string;
  readonly mode: LockMode;
  /** The decorated method, such as `OrderService.pay`, or `null` for a lock acquired through `LockService`. */
  readonly method: string | null;
  /**
   * The key template of the decorated method, or `null`. Use it as a metric label: there are far fewer templates than
   * keys.
   */
  readonly template: string | null;
}

/**
 * Why a leader's term ended.
 *
 * - `task-ended`: its task returned or threw.
 * - `lost`: its lock was lost.
 * - `signal`: the `signal` passed to `runAsLeader` was aborted.
 * - `shutdown`: the application shut down.
 */
export type ResignReason = 'task-ended' | 'lost' | 'signal' | 'shutdown';

/**
 * Why a call or a job did not run.
 *
 * - `done`: the job's tick has already been started, here or in another process.
 * - `overlap`: an earlier tick's run is still in progress.
 * - `clock`: the tick is later than the server's time, because this process's clock is ahead or `due` is in the future.
 * - `busy`: its lock was busy.
 * - `not-leader`: another process leads (`@OnlyLeader`).
 */
export type SkipReason = 'done' | 'overlap' | 'clock' | 'busy' | 'not-leader';

/** The fields of every event about a job's tick. */
export interface TickEvent {
  /** The job's key. */
  readonly key: string;
  readonly provider: string;
  /** When the job was due. */
  readonly tick: Date;
}

/** The events and their fields. All durations are in whole ms. */
export interface LockEventMap {
  /** The lock is busy, and the caller is waiting for it. */
  waiting: LockEvent;
  /** The backend granted a lock. Not emitted on re-entry. */
  acquired: LockEvent & { readonly waited: number; readonly fencingToken: bigint | null };
  /** The backend confirmed a release. */
  released: LockEvent & { readonly held: number };
  /** A lease was renewed. */
  renewed: LockEvent & { readonly remaining: number };
  /** The backend didn't respond to a renewal. The lock stays held until its deadline, and the renewal is retried. */
  'renewal-failed': LockEvent & { readonly remaining: number };
  /** A lock was lost. */
  lost: LockEvent & { readonly held: number; readonly reason: LossReason };
  /** A lock stayed busy for the whole wait. `heldBy`: the holder that kept the caller out, or `null` if unknown. */
  busy: LockEvent & { readonly waited: number; readonly heldBy: LockHolder | null };
  /**
   * A call or a job did not run: its lock was busy (`onBusy: 'skip'`, `@RunOnce`, `runOnce()`), its tick had already
   * been started, or another process is the leader (`@OnlyLeader`).
   */
  skipped: LockEvent & { readonly reason: SkipReason };
  /**
   * No process ran a job when its tick was due. The emitting process runs the job now, unless the tick is older than
   * `catchUp`; then it doesn't run, and every process that looks for missed ticks emits the event.
   */
  'run-missed': TickEvent & { readonly schedule: string };
  /** A job's process died or lost the lock: the job record says that the job is running, but the lock is free. */
  'run-abandoned': TickEvent & {
    /** The instance that started the run. */
    readonly instance: string;
    readonly startedAt: Date;
    /** Whether the process emitting this event will rerun the job (`afterCrash`). */
    readonly again: boolean;
  };
  /** This process became the leader for the key. `waited`: how long it campaigned for this term. */
  elected: LockEvent & { readonly waited: number; readonly fencingToken: bigint | null };
  /**
   * This process's term as leader has ended, and its task has settled. `ledFor`: the time from election until the lock
   * was lost or released.
   */
  resigned: LockEvent & { readonly reason: ResignReason; readonly ledFor: number };
  /** The backend didn't respond to a release, which is now being retried in the background. */
  'release-pending': LockEvent;
  /**
   * A `forceRelease` by this process succeeded. The process that held the lock emits `lost` with the reason `revoked`.
   */
  'force-released': {
    readonly key: string;
    readonly provider: string;
    /** Whether the key was held or retained (`minHold`). */
    readonly wasLocked: boolean;
  };
  /**
   * A provider's backend isn't responding. Emitted once per outage. `cause` is a copy of the error without passwords or
   * holder ids.
   */
  unavailable: { readonly provider: string; readonly cause: unknown };
  /** A failover provider has switched to another of its members. */
  failover: {
    readonly provider: string;
    /** The name of the provider that currently grants locks. */
    readonly to: string;
    readonly epoch: number;
    readonly reason: 'failure' | 'failback' | 'manual';
  };
}

export type LockEventName = keyof LockEventMap;
export type LockEventListener<N extends LockEventName> = (event: LockEventMap[N]) => void;

/**
 * An application's lock events. If a listener throws, its error is logged, and nothing else is affected.
 *
 * @example
 * ```ts
 * locks.events.on('lost', ({ key, reason }) => alerts.send(`lost ${key}: ${reason}`));
 * ```
 */
export interface LockEvents {
  on<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
  once<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
  off<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
}
