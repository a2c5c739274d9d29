import type { ProviderCore } from '../provider-core.js';
import type { KeyRequest, RequestCaller } from './key-request.js';

// How long a caller whose wait is over waits for the answer to an ask in flight: with `wait: 0` a backend that needs 20 ms to answer is not
// down, and one that gives up at the deadline itself knows why (its pool is exhausted). A backend that connects again by itself has this time for
// that as well.
const ANSWER_TIMEOUT = 1_000;

type Answering = Pick<ProviderCore, 'backend' | 'clock' | 'reachability'>;

/**
 * Until when a caller whose wait is over waits for an answer to the request. With `wait: 0` it does not wait for a holder, but it does for a connection:
 * the one in use may be dead without a sign, as behind a NAT that has forgotten it, and is replaced after `commandTimeout`. So where the
 * backend connects again by itself, a request that has failed is sent again within `commandTimeout` and a round trip.
 *
 * While the backend is known to be down for longer, a call fails with its first ask, so that an outage costs one ask for each call. An ask
 * that crosses the deadline is waited for as long as one that is sent at it.
 */
export function answerDueAt(
  { deadline, startedAt }: RequestCaller,
  request: KeyRequest | undefined,
  { backend, clock, reachability }: Answering,
): number {
  const { commandTimeout = -Infinity } = backend;
  const repeatedUntil = Math.min(startedAt + commandTimeout, reachability.downSince) + ANSWER_TIMEOUT;
  if (request?.isRepeating) return repeatedUntil;
  // While a grant of it is being confirmed, nobody knows.
  if (!request?.isAsking && (request?.unansweredFor(clock.now()) ?? 0) < Infinity) return -Infinity;
  return Math.max(Math.max(request?.askedAt ?? -Infinity, deadline) + ANSWER_TIMEOUT, repeatedUntil);
}

/** Refuses a caller whose wait is over, if the backend owes an answer to the request or has failed. Otherwise it has answered, and the lock was not its. */
export function refuseUnanswered(
  caller: RequestCaller,
  request: KeyRequest | undefined,
  { clock }: Pick<Answering, 'clock'>,
): boolean {
  if (request === undefined) return false;
  const { failure } = request;
  if (request.isAsking || request.isRepeating) caller.refuseUnavailable(failure);
  else if (failure !== undefined) caller.refuse(failure);
  else if (request.unansweredFor(clock.now()) >= ANSWER_TIMEOUT) caller.refuseUnavailable(undefined);
  else return false;
  return true;
}
