import { type LockError, LockLostError, type LossReason } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import { nameOf } from '../events/subject.js';

/** @param maxHold the option in ms, if the reason is `max-hold` */
export function lostError(
  subject: Pick<LockEvent, 'key' | 'provider' | 'method'>,
  reason: LossReason,
  cause?: unknown,
  maxHold?: number,
): LockLostError {
  const explanation =
    reason === 'max-hold'
      ? `its maxHold of ${maxHold} ms has passed. Raise maxHold if the task needs longer`
      : EXPLANATIONS[reason];
  return new LockLostError(`${nameOf(subject)} was lost: ${explanation}.`, {
    key: subject.key,
    provider: subject.provider,
    reason,
    cause,
  });
}

/**
 * The error for a key lost while the same call was waiting for another. The call gets the error once that wait ends.
 */
export function lostDuringWait(loss: LockLostError, awaitedKey: string): LockLostError {
  const { message, key, provider, reason, cause } = loss;
  const words = `${message} The call was waiting for "${awaitedKey}" at that time.`;
  const error = new LockLostError(words, { key, provider, reason, cause });
  if (isReported(loss)) markReported(error);
  return error;
}

// Other callers may get copies of an error. Copies are marked too, so each occurrence is logged only once.
const reported = new WeakSet<LockError>();

/** Notes that the error was logged. */
export function markReported(error: LockError): void {
  reported.add(error);
}

export function isReported(error: LockError): boolean {
  return reported.has(error);
}

const EXPLANATIONS: Record<Exclude<LossReason, 'max-hold'>, string> = {
  expired: 'the backend did not confirm a renewal in time. Look for a blocked event loop or an unreachable backend',
  revoked:
    'the backend reports that this process no longer holds it. Look for a force-release, a flush, an ended session, or your own COMMIT or ROLLBACK in its transaction',
  shutdown:
    'it was still held when shutdownGrace expired during shutdown. Release it when its task ends (await using, or finally), or raise shutdownGrace if the task needs longer',
  released: 'it was already released. Acquire it again',
  'rolled-back': 'its transaction was not committed, so nothing you wrote in it was saved. See the cause',
  'commit-unknown':
    'the server did not respond to its COMMIT, so what you wrote in its transaction may or may not be saved. Check the data; if the server is just slow, raise sessionGuard',
};
