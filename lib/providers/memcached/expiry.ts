import { LockConfigError } from '../../api/errors.js';

/**
 * By how much an item may end before its whole seconds are over.
 *
 * The server counts in a clock that shows whole seconds and is read once a second: what it adds the seconds to is up to two
 * seconds old. (It looks like one second as long as the reading falls on the same fraction of a second. It does not: measured on
 * 1.6.18 it moves by 1 ms a second, so that one second in about a thousand is left out.)
 */
const UNTRUSTED_SECONDS = 2;

// More seconds are taken for a point in time.
const MOST_SECONDS = 60 * 60 * 24 * 30;

/** The seconds to give an item that must live for `milliseconds` at least. It lives up to three seconds longer. */
export function secondsFor(milliseconds: number): number {
  const seconds = Math.ceil(milliseconds / 1_000) + UNTRUSTED_SECONDS;
  if (seconds <= MOST_SECONDS) return seconds;
  throw new LockConfigError(`memcached keeps nothing for ${milliseconds} ms: the most is 30 days.`);
}
