import { LockConfigError } from '../../api/errors.js';

/**
 * How much earlier than its TTL an item may expire.
 *
 * The server's clock counts whole seconds and is updated once a second, so it may add the TTL to a time that is almost
 * two seconds old. One second would be enough if every update happened at the same fraction of a second, but on
 * 1.6.18
 * the updates drift by 1 ms a second, so the clock skips about one second in a thousand.
 */
const UNTRUSTED_SECONDS = 2;

// memcached interprets larger TTLs as Unix timestamps.
const MOST_SECONDS = 60 * 60 * 24 * 30;

/**
 * Returns the TTL for an item that must live for at least `milliseconds`. The item may live up to three seconds longer.
 */
export function secondsFor(milliseconds: number): number {
  const seconds = Math.ceil(milliseconds / 1_000) + UNTRUSTED_SECONDS;
  if (seconds <= MOST_SECONDS) return seconds;
  throw new LockConfigError(
    `memcached cannot keep a lock for ${milliseconds} ms, because items expire after at most 30 days. Choose a shorter lease or minHold.`,
  );
}
