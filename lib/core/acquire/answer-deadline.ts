import type { ProviderCore } from '../provider-core.js';
import type { KeyRequest } from './key-request.js';
import type { Refusal } from './lock-observer.js';
import type { Waiter } from './waiter.js';

// With `wait: 0`, a backend that needs 20 ms to answer is not down, and one that gives up at the deadline itself knows why (its pool is exhausted).
// A backend that connects again by itself has this time for that as well.
const ANSWER_TIMEOUT = 1_000;

/**
 * Until when a waiter whose wait is over waits for an answer to the request of its queue, on the monotonic clock. With `wait: 0` it does not wait for a
 * holder, but it does for a connection: the one in use may be dead without a sign, as behind a NAT that has forgotten it, and is replaced after
 * `commandTimeout`. So where the backend connects again by itself, a request that has failed is sent again within `commandTimeout` and a round trip.
 *
 * While the backend is known to be down for longer, a call fails with its first request, so that an outage costs one request for each call. A request
 * that crosses the deadline is waited for as long as one that is sent at the deadline.
 */
export function answerDueAt(
  { deadline, startedAt }: Waiter,
  request: KeyRequest | undefined,
  { backend, clock, reachability }: ProviderCore,
): number {
  const repeatedUntil =
    Math.min(startedAt + (backend.commandTimeout ?? -Infinity), reachability.downSince) + ANSWER_TIMEOUT;
  if (request?.isRepeating) return repeatedUntil;
  // While a grant is being confirmed, whether it is held is not known.
  if (!request?.isAsking && (request?.unansweredFor(clock.now()) ?? 0) < Infinity) return -Infinity;
  return Math.max(Math.max(request?.askedAt ?? -Infinity, deadline) + ANSWER_TIMEOUT, repeatedUntil);
}

/** Why a waiter leaves when its wait is over. Unless the backend owes an answer or has failed, it has answered, and the lock was not the waiter's. */
export function refusalAfter(request: KeyRequest, now: number): Refusal {
  const { failure } = request;
  if (request.isAsking || request.isRepeating) return { why: 'unavailable', cause: failure };
  if (failure !== undefined) return { why: 'failed', error: failure };
  return request.unansweredFor(now) < ANSWER_TIMEOUT ? { why: 'busy' } : { why: 'unavailable', cause: undefined };
}
