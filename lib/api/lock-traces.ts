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
  /**
   * A subscriber sets it at `start` to learn the holder. It is called at most once, 250 or 500 ms into the wait, if the holder has a label by then; see
   * {@link HoldTrace.traceparent}. Not enumerable, so no copy and no log of the trace has it.
   */
  onHolder?: ((label: HolderLabel) => void) | undefined;
}

/** The label of a lock: what the process that holds it has written beside it, for those that wait. Memory and Redis have labels. */
export interface HolderLabel {
  /** The decorated method that holds the lock, such as `OrderService.pay`; `null` for a lock of `LockService`. */
  readonly method: string | null;
  /** The W3C `traceparent` of the span of the hold; `null` if that span is not sampled. */
  readonly traceparent: string | null;
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
  /**
   * A subscriber that makes a span of the hold sets it at `start`: to the W3C `traceparent` of that span, or to `null` if the span is not sampled. A hold in
   * mode `exclusive` that lasts 250 ms then has a {@link HolderLabel} beside its lock; without this property nothing is written. Not enumerable, so no
   * copy and no log of the trace has it.
   */
  traceparent?: string | null | undefined;
  result?: 'released' | 'pending';
  /** The task under it has failed. */
  failed?: true;
  error?: LockLostError;
}

/**
 * The messages of the channel `nestjs-distributed-lock:contention`: a caller found its lock busy, has waited for it, and was granted it or left. A caller
 * that does not wait is none.
 */
export interface ContentionTrace extends LockEvent {
  /** For how many ms it waited for this key. */
  readonly waited: number;
  /**
   * - `holder`: one holder had the lock since before the caller came.
   * - `queue`: the lock went from holder to holder.
   * - `unknown`: several held it together (`shared`, `limited`), or the backend does not know.
   */
  readonly blockedBy: 'holder' | 'queue' | 'unknown';
  /** The instance of the one holder, as the instances of `LockContention` are named; otherwise `null`. */
  readonly instance: string | null;
}
