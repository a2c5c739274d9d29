import { channel, tracingChannel, type Channel, type TracingChannel } from 'node:diagnostics_channel';
import type { LockEventName } from '../../api/lock-events.js';
import type { AcquireTrace, ContentionTrace, HoldTrace, JobTrace } from '../../api/lock-traces.js';

// Channels are process-wide: all applications and copies of this package share them by name.
const PREFIX = 'nestjs-distributed-lock';

export const acquireChannel: TracingChannel<unknown, AcquireTrace> = tracingChannel(`${PREFIX}:acquire`);
export const holdChannel: TracingChannel<unknown, HoldTrace> = tracingChannel(`${PREFIX}:hold`);
/** Announces the jobs that this process schedules. */
export const jobChannel: Channel<unknown, JobTrace> = channel(`${PREFIX}:job`) as Channel<unknown, JobTrace>;
/** Reports each wait for a busy lock. */
export const contentionChannel: Channel<unknown, ContentionTrace> = channel(`${PREFIX}:contention`) as Channel<
  unknown,
  ContentionTrace
>;

/** One channel per event, such as `nestjs-distributed-lock:lost`. The messages are the events. */
export const eventChannels: Readonly<Record<LockEventName, Channel>> = {
  waiting: channel(`${PREFIX}:waiting`),
  acquired: channel(`${PREFIX}:acquired`),
  released: channel(`${PREFIX}:released`),
  renewed: channel(`${PREFIX}:renewed`),
  'renewal-failed': channel(`${PREFIX}:renewal-failed`),
  lost: channel(`${PREFIX}:lost`),
  busy: channel(`${PREFIX}:busy`),
  skipped: channel(`${PREFIX}:skipped`),
  'run-missed': channel(`${PREFIX}:run-missed`),
  'run-abandoned': channel(`${PREFIX}:run-abandoned`),
  elected: channel(`${PREFIX}:elected`),
  resigned: channel(`${PREFIX}:resigned`),
  'release-pending': channel(`${PREFIX}:release-pending`),
  'force-released': channel(`${PREFIX}:force-released`),
  unavailable: channel(`${PREFIX}:unavailable`),
  failover: channel(`${PREFIX}:failover`),
};
