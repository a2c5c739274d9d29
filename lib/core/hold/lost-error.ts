import { LockLostError, type LossReason } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import { nameOf } from '../events/subject.js';

/**
 * The error for a lock that is not held any more.
 *
 * @param maxHold in ms, of a lock that was lost by it
 */
export function lostError(
  subject: Pick<LockEvent, 'key' | 'provider' | 'method'>,
  reason: LossReason,
  cause?: unknown,
  maxHold?: number,
): LockLostError {
  const explanation =
    reason === 'max-hold'
      ? `its maxHold of ${maxHold} ms has passed; raise it if the task needs longer`
      : EXPLANATIONS[reason];
  return new LockLostError(`${nameOf(subject)} was lost: ${explanation}.`, {
    key: subject.key,
    provider: subject.provider,
    reason,
    cause,
  });
}

/** The same loss for a call of several keys, which learns of it when it gets the key that it was waiting for. */
export function lostDuringWait(loss: LockLostError, awaitedKey: string): LockLostError {
  const { message, key, provider, reason, cause } = loss;
  const words = `${message} The call was waiting for "${awaitedKey}" at that time.`;
  const error = new LockLostError(words, { key, provider, reason, cause });
  if (isReported(loss)) markReported(error);
  return error;
}

// Of a copy for another caller as well: one loss is one line in the log.
const reported = new WeakSet<LockLostError>();

/** Notes that the loss is in the log. */
export function markReported(error: LockLostError): void {
  reported.add(error);
}

export function isReported(error: LockLostError): boolean {
  return reported.has(error);
}

const EXPLANATIONS: Record<Exclude<LossReason, 'max-hold'>, string> = {
  expired: 'no renewal was acknowledged before its deadline; look for a blocked event loop or an unreachable backend',
  revoked:
    'the backend reports that it is not ours any more (force-released, flushed, its session ended, or a statement of yours, such as COMMIT, ended its transaction)',
  shutdown:
    'the application stopped, and it was still held when shutdownGrace had passed; release it (await using, or finally) if its task had ended, or raise shutdownGrace if the task needs longer',
  released: 'it was released already',
  'rolled-back':
    'its transaction could not be committed, so that nothing that was written in it is saved; see the cause',
  'commit-unknown':
    'the outcome of COMMIT is unknown, so that what was written in its transaction may be saved or not; raise sessionGuard if the server is only slow',
};
