import { LockLostError } from '../../api/errors.js';
import { acquireChannel, holdChannel } from './channels.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { AcquireTrace, HoldTrace } from '../../api/lock-traces.js';
import type { Answer } from '../../api/lock-provider.js';

/*
 * Where the engine meets Node's tracing channels: at the two places where a wish becomes a hold and a hold ends. The
 * channels cannot be fed from the events, which say neither when a call began nor which grant a release belongs to;
 * and not from the decorator, which does not see what is taken by hand. A caller asks `hasSubscribers` before it builds
 * anything: an uncontended lock in memory costs less than one promise more.
 */

/** Runs one acquisition under its tracing channel. What it gives stays out of the trace: a hold knows its holder id. */
export async function traceAcquisition<T>(
  subject: LockEvent,
  signal: AbortSignal | undefined,
  acquire: () => Answer<T>,
): Promise<T> {
  const trace: AcquireTrace = { ...subject };
  const granted: T[] = [];
  await acquireChannel.tracePromise(async () => {
    try {
      granted.push(await acquire());
    } catch (error) {
      // Nobody else can tell: the reason of a signal may be anything, an error of a lock too.
      if (signal?.aborted && error === signal.reason) trace.cancelled = true;
      throw error;
    }
  }, trace);
  return granted[0] as T;
}

/** How a hold ended: said once, by {@link traceHold}. */
export type HoldEnd = NonNullable<HoldTrace['result']> | LockLostError;

/** Begins the trace of a hold, if anybody listens. The answer ends it. */
export function traceHold(subject: LockEvent, fencingToken: bigint | null): ((end: HoldEnd) => void) | undefined {
  if (!holdChannel.hasSubscribers) return undefined;
  let finish: ((end: HoldEnd) => void) | undefined;
  const over = new Promise<unknown>((resolve, reject) => {
    finish = (end) => {
      if (end instanceof LockLostError) reject(end);
      else resolve(end);
    };
  });
  // The loss is told to whoever holds the lock; here it is only noted.
  holdChannel.tracePromise(() => over, { ...subject, fencingToken }).catch(() => undefined);
  return finish;
}
