import { LockConfigError } from '../../api/errors.js';

/**
 * By how much an item may end before its whole seconds are over.
 *
 * The clock of the server shows whole seconds and is read once a second, so the time to which it adds the seconds is up to two
 * seconds old. (It seems to be one second as long as the clock is read at the same fraction of each second. It is not: measured on
 * 1.6.18, the reading moves by 1 ms a second, so one second in about a thousand is left out.)
 */
const UNTRUSTED_SECONDS = 2;

// memcached takes a larger number for a date.
const MOST_SECONDS = 60 * 60 * 24 * 30;

/** The seconds to give an item that must live for `milliseconds` at least. It lives up to three seconds longer. */
export function secondsFor(milliseconds: number): number {
  const seconds = Math.ceil(milliseconds / 1_000) + UNTRUSTED_SECONDS;
  if (seconds <= MOST_SECONDS) return seconds;
  throw new LockConfigError(
    `memcached cannot keep a lock for ${milliseconds} ms, because it keeps items for 30 days at most. Choose a shorter lease or minHold.`,
  );
}
