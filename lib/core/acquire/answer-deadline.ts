import type { ProviderCore } from '../provider-core.js';
import type { KeyRequest } from './key-request.js';
import type { Refusal } from './lock-observer.js';
import type { Waiter } from './waiter.js';

// Even with `wait: 0`, a backend that needs 20 ms to answer is not down. A backend that gives up at the deadline reports the reason, such as an
// exhausted pool, and a backend that reconnects automatically needs this time for that as well.
const ANSWER_TIMEOUT = 1_000;

/**
 * The time, on the monotonic clock, until which a waiter whose wait is over still waits for an answer to the request of its queue. With `wait: 0`, it
 * does not wait for a holder, but it does wait for a connection: the current one may be dead without a sign, for example behind a NAT that forgot it,
 * and is replaced after `commandTimeout`. So a backend that reconnects automatically sends a failed request again within `commandTimeout` plus a round trip.
 *
 * While the backend is known to be down for longer, a call fails with its first request, so an outage costs one request for each call. A request
 * that is in flight at the deadline gets as much time as a request that is sent at the deadline.
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
  if (!request?.isAsking && (request?.unansweredFor(clock.now()) ?? 0) < Infinity) return -Infinity;
  return Math.max(Math.max(request?.askedAt ?? -Infinity, deadline) + ANSWER_TIMEOUT, repeatedUntil);
}

/** Why a waiter leaves when its wait is over: the backend has failed, owes an answer, or has answered that the lock is busy. */
export function refusalAfter(request: KeyRequest, now: number): Refusal {
  const { failure } = request;
  if (request.isAsking || request.isRepeating) return { why: 'unavailable', cause: failure };
  if (failure !== undefined) return { why: 'failed', error: failure };
  return request.unansweredFor(now) < ANSWER_TIMEOUT ? { why: 'busy' } : { why: 'unavailable', cause: undefined };
}
