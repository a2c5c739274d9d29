import type { LockLostError } from './errors.js';
import type { LockEvent } from './lock-events.js';

/**
 * The messages of the tracing channel `nestjs-distributed-lock:acquire`: one caller on its way to one key, from the call to
 * the grant or the error. A nested entry into a lock that is held already is none.
 */
export interface AcquireTrace extends LockEvent {
  /** Why it was not granted. */
  error?: unknown;
  /** Its caller has given it up: `error` is the reason of the `AbortSignal`, whatever that is. */
  cancelled?: true;
}

/**
 * The messages of the channel `nestjs-distributed-lock:job`: a job that this process schedules, at the end of the boot and at each firing. The message of
 * a job is always the same object, so it can be kept and asked later.
 */
export interface JobTrace extends LockEvent {
  /**
   * For how many ms a tick is overdue that no process is known here to have begun; 0 if there is none. A tick is not overdue if it was due during a run.
   * `undefined` when the application has stopped.
   */
  overdue(): number | undefined;
}

/**
 * The messages of the tracing channel `nestjs-distributed-lock:hold`: one key held by one owner, from the grant to the end.
 * A hold ends once: released, not known to be released, or with `LockLostError` as its error.
 */
export interface HoldTrace extends LockEvent {
  readonly fencingToken: bigint | null;
  result?: 'released' | 'pending';
  /** The task under it has failed. */
  failed?: true;
  error?: LockLostError;
}
