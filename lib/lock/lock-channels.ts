import { channel, tracingChannel, type Channel, type TracingChannel } from 'node:diagnostics_channel';
import type { LockLostError } from './errors.js';
import type { LockEvent, LockEventName } from './lock-events.js';

/**
 * What the tracing channel `nestjs-distributed-lock:acquire` tells of: one caller on its way to one key, from the call to
 * the grant or the error. A nested entry into a lock that is held already is none.
 */
export interface AcquireTrace extends LockEvent {
  /** Why it was not granted. */
  error?: unknown;
}

/**
 * What the tracing channel `nestjs-distributed-lock:hold` tells of: one key held by one owner, from the grant to the end.
 * It ends once: released, not known to be released, or with `LockLostError` as its error.
 */
export interface HoldTrace extends LockEvent {
  readonly fencingToken: bigint | null;
  result?: 'released' | 'unconfirmed';
  error?: LockLostError;
}

// Channels belong to the process: all applications in it, and all copies of this package, share them by name.
const PREFIX = 'nestjs-distributed-lock';

export const acquireChannel: TracingChannel<unknown, AcquireTrace> = tracingChannel(`${PREFIX}:acquire`);
export const holdChannel: TracingChannel<unknown, HoldTrace> = tracingChannel(`${PREFIX}:hold`);

/** One channel for each event, such as `nestjs-distributed-lock:lost`. Its messages are the events. */
export const eventChannels: Readonly<Record<LockEventName, Channel>> = {
  waiting: channel(`${PREFIX}:waiting`),
  acquired: channel(`${PREFIX}:acquired`),
  released: channel(`${PREFIX}:released`),
  renewed: channel(`${PREFIX}:renewed`),
  unrenewed: channel(`${PREFIX}:unrenewed`),
  lost: channel(`${PREFIX}:lost`),
  timeout: channel(`${PREFIX}:timeout`),
  skipped: channel(`${PREFIX}:skipped`),
  unconfirmed: channel(`${PREFIX}:unconfirmed`),
  unavailable: channel(`${PREFIX}:unavailable`),
};
