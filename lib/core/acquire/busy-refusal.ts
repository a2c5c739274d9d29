import type { DeadlockMember } from '../../api/deadlock.js';
import type { LockBusyError, LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { ProviderCore } from '../provider-core.js';
import type { HeldMeanwhile } from './held-meanwhile.js';
import { holderInWords, type KnownHolding, lockHolder } from './holder-report.js';
import { busyError, deadlockError } from './refusals.js';

type Reporting = Pick<ProviderCore, 'clock' | 'events'>;

/** A caller that is refused. */
interface Refused {
  readonly subject: LockEvent;
  /** When it came, on the monotonic clock. */
  readonly startedAt: number;
  /** How long it would wait, in ms. */
  readonly wait?: number;
  /** The holder that kept it out. */
  readonly holding: KnownHolding | null;
}

interface BusyReason extends Pick<HeldMeanwhile, 'around'> {
  readonly mayReEnter: boolean;
}

/** The error of a caller that found its key busy. Publishes it as an event. */
export function busyRefusal(core: Reporting, refused: Refused, { around, mayReEnter }: BusyReason): LockBusyError {
  const { subject, startedAt, holding } = refused;
  const { now, waited, heldBy } = publishBusy(core, refused);
  const own = around?.isValid(now) === true ? around.subject : undefined;
  const other = holding?.isHere === true && mayReEnter ? 'this process' : undefined;
  // The number that the user gave, and not what a timer made of it.
  const inFull = Math.min(waited, refused.wait ?? waited);
  return busyError(subject, inFull, own ?? other, heldBy, holding && holderInWords(holding, startedAt, now));
}

/** The error of a caller that waits in this cycle. Publishes it as an event: the caller is refused because the key is busy. */
export function deadlockRefusal(
  core: Reporting,
  refused: Refused,
  cycle: readonly DeadlockMember[],
): LockDeadlockError {
  const { waited } = publishBusy(core, refused);
  return deadlockError(refused.subject, Math.round(waited), cycle);
}

function publishBusy({ clock, events }: Reporting, { subject, startedAt, holding }: Refused) {
  const now = clock.now();
  const waited = now - startedAt;
  const heldBy = holding && lockHolder(holding, now, clock.wallTime());
  events.publish('busy', { ...subject, waited: Math.round(waited), heldBy });
  return { now, waited, heldBy };
}
