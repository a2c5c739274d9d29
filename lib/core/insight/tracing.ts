import { LockLostError } from '../../api/errors.js';
import { withJson } from '../toolkit/with-json.js';
import { acquireChannel, holdChannel } from '../events/channels.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace, HoldTrace } from '../../api/lock-traces.js';

/*
 * Where the core feeds Node's tracing channels: where a caller acquires a key, and where a hold ends. The
 * channels cannot be fed from the events, which report neither when a call began nor which grant a release belongs to;
 * and not from the decorator, which does not see what `LockService` acquires. A caller asks `hasSubscribers` before it builds
 * anything.
 */

/** Runs one acquisition under its tracing channel. What it gives stays out of the trace: a hold knows its holder id. */
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
      // Only here is this known: the reason of a signal may be anything, an error of a lock too.
      if (signal?.aborted && error === signal.reason) trace.cancelled = true;
      throw error;
    }
  }, trace);
  return granted[0] as T;
}

/** Ends the trace of a hold, once. `failed`: the task under it failed. */
export type EndTrace = (end: NonNullable<HoldTrace['result']> | LockLostError, failed: boolean) => void;

/** A hold whose trace has begun. */
interface TracedHold {
  readonly end: EndTrace | undefined;
  /** As its subscribers have set it. */
  readonly traceparent: HoldTrace['traceparent'];
}

/** Begins the trace of a hold. */
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
  // The holder gets the loss as an error of its own; here it is only recorded.
  holdChannel.tracePromise(() => over, trace).catch(() => undefined);
  return { end: finish, traceparent: trace.traceparent };
}

/** A trace with a property that its subscribers may set, and that neither a copy nor a log of it has. */
function withHidden<T extends object>(trace: T, property: keyof T): T {
  return withJson(Object.defineProperty(trace, property, { value: undefined, writable: true, configurable: true }));
}
