import type { ProviderCore } from '../provider-core.js';
import type { KeyRequest } from './key-request.js';
import type { Refusal } from './lock-observer.js';
import type { Waiter } from './waiter.js';

// A backend that takes 20 ms to respond isn't down, even for a call with `wait: 0`. The timeout also leaves time to
// reconnect, and lets a backend that gives up at the deadline report why, such as an exhausted pool.
const ANSWER_TIMEOUT = 1_000;

/**
 * When a waiter past its deadline stops waiting for a response to its queue's request.
 *
 * With `wait: 0`, a caller doesn't wait for a holder, but it does wait for a connection. The current connection may
 * have died unnoticed, for example because a NAT dropped it; the backend replaces it after `commandTimeout`
 * and sends the request again.
 *
 * If the backend has been down for longer than that, a call fails when its first request does, so an outage costs one
 * request per call. A request in flight at the deadline gets as much time as one sent at the deadline.
 */
export function answerDueAt(
  { deadline, startedAt }: Waiter,
  request: KeyRequest | undefined,
  { backend, clock, reachability }: ProviderCore,
): number {
  const repeatedUntil =
    Math.min(startedAt + (backend.commandTimeout ?? -Infinity), reachability.downSince) + ANSWER_TIMEOUT;
  if (request?.isRepeating) return repeatedUntil;
  // While a grant is being confirmed, it is unknown whether the lock is held.
  if (!request?.isUnanswered && (request?.unansweredFor(clock.now()) ?? 0) < Infinity) return -Infinity;
  return Math.max(Math.max(request?.sentAt ?? -Infinity, deadline) + ANSWER_TIMEOUT, repeatedUntil);
}

/** Why a waiter leaves after its deadline: the backend failed, hasn't responded, or reported the lock as busy. */
export function refusalAfter(request: KeyRequest, now: number): Refusal {
  const { failure, wasSent } = request;
  if (request.isUnanswered || request.isRepeating) return { why: 'unavailable', cause: failure, sent: wasSent };
  if (failure !== undefined) return { why: 'failed', error: failure };
  return request.unansweredFor(now) < ANSWER_TIMEOUT
    ? { why: 'busy' }
    : { why: 'unavailable', cause: undefined, sent: true };
}
