import type { DeadlockMember } from '../../api/deadlock.js';
import type { LockBusyError, LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { ProviderCore } from '../provider-core.js';
import type { HeldMeanwhile } from './held-meanwhile.js';
import { holderInWords, type KnownHolding, lockHolder } from './holder-report.js';
import { busyError, deadlockError } from './refusals.js';

type Reporting = Pick<ProviderCore, 'clock' | 'events'>;

interface BusyReason extends Pick<HeldMeanwhile, 'around'> {
  readonly holding: KnownHolding | null;
  readonly mayReEnter: boolean;
}

/** The error of a caller that came at `startedAt` and found its key busy. Publishes it as an event. */
export function busyRefusal(
  { clock, events }: Reporting,
  subject: LockEvent,
  startedAt: number,
  { holding, around, mayReEnter }: BusyReason,
): LockBusyError {
  const now = clock.now();
  const waited = now - startedAt;
  const heldBy = holding && lockHolder(holding, now, clock.wallTime());
  events.publish('busy', { ...subject, waited: Math.round(waited), heldBy });
  const own = around?.isValid(now) === true ? around.subject : undefined;
  const other = holding?.isHere === true && mayReEnter ? 'this process' : undefined;
  return busyError(subject, waited, own ?? other, heldBy, holding && holderInWords(holding, startedAt, now));
}

/** The error of a caller that came at `startedAt` and waits in this circle. Publishes it as an event: the caller is refused because the key is busy. */
export function deadlockRefusal(
  { clock, events }: Reporting,
  subject: LockEvent,
  startedAt: number,
  circle: readonly DeadlockMember[],
): LockDeadlockError {
  const waited = Math.round(clock.now() - startedAt);
  const [, holder] = circle;
  const heldBy = holder ? { instance: holder.instance, method: holder.method, since: null, holders: 1 } : null;
  events.publish('busy', { ...subject, waited, heldBy });
  return deadlockError(subject, waited, circle);
}
