import type { DeadlockMember } from '../../api/deadlock.js';
import {
  LockBusyError,
  LockCapacityError,
  LockDeadlockError,
  LockError,
  LockUnavailableError,
} from '../../api/errors.js';
import type { LockHolder } from '../../api/lock-holder.js';
import type { LockEvent } from '../../api/lock-events.js';
import { nameOf, placeOf } from '../events/subject.js';

/** The remedies for a call that waits for a lock held in its own async context. */
export function nestedOrQueued({ method }: Pick<LockEvent, 'method'>): string {
  // A decorated method has no variable for its lock.
  const inMethod = method === null ? '' : `in ${method}, run it with currentLock().run(() => …); elsewhere, `;
  return (
    `If the call is nested in that lock, it waits for itself: ${inMethod}pass { within: lock }, call it under lock.run(), or set reentrant: true. ` +
    'If a queue in this process started it, bind the queued tasks with AsyncResource.bind().'
  );
}

/** Identifies the holder of a key in the caller's own async context. */
export function ownHolder({ method }: Pick<LockEvent, 'method'>): string {
  return method === null ? 'its own holder' : `its own holder, ${method}`;
}

const selfWaits = new WeakSet<LockError>();

/** Whether the call almost certainly waited for itself. This is a bug in the application, so retrying does not help. */
export function isSelfWait(error: LockError): boolean {
  return selfWaits.has(error);
}

/**
 * @param holder the lock in the caller's own async context, another holder in this process, or `undefined` for any
 * other holder
 * @param holderInWords `heldBy` as text
 */
export function busyError(
  subject: LockEvent,
  waited: number,
  holder: Pick<LockEvent, 'method'> | 'this process' | undefined,
  heldBy: LockHolder | null,
  holderInWords: string | null,
): LockBusyError {
  let advice = 'Raise "wait", or handle a busy lock with onBusy or tryAcquire().';
  if (holder === 'this process') {
    advice = `This process holds it. ${advice} If the caller itself holds it, pass { within: lock }, or run the nested call under lock.run(); in a decorated method, use currentLock().run().`;
  } else if (holder !== undefined) {
    advice = `The call runs in the async context of ${ownHolder(holder)}. ${nestedOrQueued(holder)}`;
  }
  const when = waited < 1 ? '' : ` for the whole wait of ${Math.round(waited)} ms`;
  const { key, provider } = subject;
  const because = holderInWords === null ? '' : `: ${holderInWords}`;
  const details = { key, provider, waited: Math.round(waited), heldBy };
  const error = new LockBusyError(`${nameOf(subject)} was busy${when}${because}. ${advice}`, details);
  if (typeof holder === 'object') selfWaits.add(error);
  return error;
}

// How many cycle members a message lists. A cycle may have dozens.
const MAX_NAMED = 8;

export function deadlockError(subject: LockEvent, waited: number, cycle: readonly DeadlockMember[]): LockDeadlockError {
  const [own, ...others] = cycle;
  const inWords = others.slice(0, MAX_NAMED).map(({ instance, method, holds, waitsFor }) => {
    const where = method === null ? '' : ` in ${method}`;
    return `instance "${instance}" holds ${shortKey(holds)} and waits for ${shortKey(waitsFor)}${where}`;
  });
  const more = others.length - inWords.length;
  const rest = more > 0 ? [`and so on, through ${more} more`] : [];
  const all = [`this call holds ${shortKey(own?.holds ?? '')}`, ...inWords, ...rest].join('; ');
  return new LockDeadlockError(
    `${nameOf(subject)} was refused after ${waited} ms, because callers are waiting for each other in a cycle: ${all}. ` +
      'Release what this call holds and retry the call. Acquire these locks in the same order everywhere, or all at once with an array of keys.',
    { key: subject.key, provider: subject.provider, waited, cycle },
  );
}

function shortKey(key: string): string {
  return placeOf({ key, method: null });
}

export function unavailableError(
  subject: LockEvent,
  { cause, sent }: { readonly cause: unknown; readonly sent: boolean },
): LockUnavailableError {
  const { key, provider } = subject;
  const message = `${nameOf(subject)} could not be acquired: ${reasonOf(cause)}`;
  return new LockUnavailableError(message, { key, provider, cause, sent });
}

export function capacityError(subject: LockEvent, waiting: number): LockCapacityError {
  return new LockCapacityError(
    `${nameOf(subject)} already has ${waiting} callers waiting in this process, which is the limit. Shed load, or shorten "wait".`,
    subject,
  );
}

/**
 * Quotes the failure's message: a backend that reports an error has responded. If there is no message, it hasn't
 * responded.
 */
function reasonOf(cause: unknown): string {
  const words = cause instanceof Error ? cause.message : '';
  if (words === '') return 'the backend did not respond; check that it is up and reachable.';
  return LockError.is(cause) ? words : `the backend failed with "${words}"; check its status and log.`;
}
