import { LockLostError } from '../../api/errors.js';
import { withJson } from '../toolkit/with-json.js';
import { acquireChannel, holdChannel } from '../events/channels.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace, HoldTrace } from '../../api/lock-traces.js';

/*
 * The core publishes to Node's tracing channels when a caller acquires a key and when a hold ends. Lock events aren't
 * enough for this: they report neither when a call started nor which grant a release belongs to. Decorators don't even
 * see `LockService` locks.
 *
 * Check `hasSubscribers` before you call these functions.
 */

/** Traces one acquisition. The trace doesn't include the result, because a hold contains its secret holder id. */
export async function traceAcquisition<T>(
  subject: LockEvent,
  signal: AbortSignal | undefined,
  acquire: (trace: AcquireTrace) => Promise<T>,
): Promise<T> {
  const trace = withHidden<AcquireTrace>({ ...subject }, 'onHolder');
  const granted: T[] = [];
  await acquireChannel.tracePromise(async () => {
    try {
      granted.push(await acquire(trace));
    } catch (error) {
      // Detect cancellation here, because a signal's reason can be any value, even a lock error.
      if (signal?.aborted && error === signal.reason) trace.cancelled = true;
      throw error;
    }
  }, trace);
  return granted[0] as T;
}

/** Ends a hold's trace. `failed`: whether the task failed. */
export type EndTrace = (end: NonNullable<HoldTrace['result']> | LockLostError, failed: boolean) => void;

interface TracedHold {
  readonly end: EndTrace | undefined;
  /** The value set by a subscriber. */
  readonly traceparent: HoldTrace['traceparent'];
}

export function traceHold(subject: LockEvent, fencingToken: bigint | null): TracedHold {
  const trace = withHidden<HoldTrace>({ ...subject, fencingToken }, 'traceparent');
  let finish: EndTrace | undefined;
  const over = new Promise<unknown>((resolve, reject) => {
    finish = (end, failed) => {
      if (failed) trace.failed = true;
      if (end instanceof LockLostError) reject(end);
      else resolve(end);
    };
  });
  // The holder of a lost lock gets its own error, so this rejection is only for the trace.
  holdChannel.tracePromise(() => over, trace).catch(() => undefined);
  return { end: finish, traceparent: trace.traceparent };
}

/** Adds a property that subscribers may set. It is not enumerable, so copies and logs of the trace don't contain it. */
function withHidden<T extends object>(trace: T, property: keyof T): T {
  return withJson(Object.defineProperty(trace, property, { value: undefined, writable: true, configurable: true }));
}
