import type { LockLostError } from './errors.js';
import type { LockEvent } from './lock-events.js';

/**
 * The messages of the tracing channel `nestjs-distributed-lock:acquire`: one caller's attempt to acquire one key, from
 * the call to the grant or the error. Not published on re-entry.
 */
export interface AcquireTrace extends LockEvent {
  /** Why the lock was not granted. */
  error?: unknown;
  /** The caller canceled the attempt: `error` is its `AbortSignal`'s reason, which can be any value. */
  cancelled?: true;
  /**
   * Set this callback at `start` to identify the holder. It is called at most once, 250 or 500 ms into the wait, if the
   * holder has a label by then; see {@link HoldTrace.traceparent}. Not enumerable, so copies and logs of the trace do
   * not contain it.
   */
  onHolder?: ((label: HolderLabel) => void) | undefined;
}

/** A lock's label, which the holder stores next to the lock for waiting processes. Memory and Redis support labels. */
export interface HolderLabel {
  /**
   * The decorated method that holds the lock, such as `OrderService.pay`; `null` for a lock acquired through
   * `LockService`.
   */
  readonly method: string | null;
  /** The W3C `traceparent` of the hold's span; `null` if the span is not sampled. */
  readonly traceparent: string | null;
}

/**
 * The messages of the channel `nestjs-distributed-lock:job`: a job that this process schedules, published at the end of
 * startup and each time it fires. A job's message is always the same object, so you can keep it and call `overdue()`
 * later.
 */
export interface JobTrace extends LockEvent {
  /**
   * How long a tick has been overdue, in ms, if this process doesn't know of any process that started it; otherwise 0.
   * A tick that was due during a run is not overdue. `undefined` after the application has shut down.
   */
  overdue(): number | undefined;
}

/**
 * The messages of the tracing channel `nestjs-distributed-lock:hold`: one key held by one owner, from the grant to the
 * end. Each hold ends once: as released, as release pending, or as lost, with a `LockLostError` as `error`.
 */
export interface HoldTrace extends LockEvent {
  readonly fencingToken: bigint | null;
  /**
   * A subscriber that creates a span for the hold sets this at `start` to the span's W3C `traceparent`, or to `null` if
   * the span isn't sampled. An `exclusive` hold that lasts 250 ms then gets a {@link HolderLabel}; without this
   * property, it gets none. Not enumerable, so copies and logs of the trace do not contain it.
   */
  traceparent?: string | null | undefined;
  result?: 'released' | 'pending';
  /** The task under the lock failed. */
  failed?: true;
  error?: LockLostError;
}

/**
 * The messages of the channel `nestjs-distributed-lock:contention`: a caller waited for a busy lock and then got it or
 * gave up. Not published for a caller that doesn't wait.
 */
export interface ContentionTrace extends LockEvent {
  /** How long the caller waited for this key, in ms. */
  readonly waited: number;
  /**
   * - `holder`: a single holder that had the lock before the caller arrived.
   * - `queue`: the lock passed from holder to holder.
   * - `unknown`: several callers held it at the same time (`shared`, `limited`), or the backend doesn't know.
   */
  readonly blockedBy: 'holder' | 'queue' | 'unknown';
  /** The single holder's instance, named as in `LockContention`; otherwise `null`. */
  readonly instance: string | null;
}
