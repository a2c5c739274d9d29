import { LockKeyError } from '../api/errors.js';
import { quote } from './quote.js';

/** What to lock: one key, or several keys that are acquired all or nothing. */
export type LockKey = string | readonly string[];

/** The maximum number of keys per lock. */
export const MAX_KEYS = 100;

/**
 * The maximum length of a key in UTF-8 bytes. Anything longer is probably data, and every request would have to
 * transmit it.
 */
export const MAX_KEY_BYTES = 4_096;

const LONE_SURROGATE = /\p{Surrogate}/u;

// UTF-8 needs at most three bytes per UTF-16 code unit, so most keys don't need a byte count.
const SURELY_SHORT = Math.floor(MAX_KEY_BYTES / 3);

/**
 * The keys of a lock in the order in which every process acquires them: sorted by UTF-16 code units, without
 * duplicates.
 *
 * @throws LockKeyError if a key is empty, malformed, too long, a template, or not a string, or if there are no keys or
 * too many
 */
export function normalizeKeys(key: LockKey): readonly string[] {
  if (typeof key === 'string') {
    checkKey(key);
    return [key];
  }
  if (!Array.isArray(key))
    throw new LockKeyError(`A lock key must be a string or a list of strings, got ${typeof key}`);
  const keys: readonly string[] = key;
  if (keys.length === 0) throw new LockKeyError('An empty list of lock keys locks nothing: name at least one key');
  if (keys.length > MAX_KEYS) {
    throw new LockKeyError(`A lock takes at most ${MAX_KEYS} keys, got ${keys.length}: lock something they share`);
  }
  for (const each of keys) checkKey(each);
  return [...new Set(keys)].sort();
}

function checkKey(key: unknown): void {
  if (typeof key !== 'string') throw new LockKeyError(`A lock key must be a string, got ${typeof key}`);
  if (key === '') throw new LockKeyError('A lock key must not be empty');
  if (key.includes('#{')) {
    throw new LockKeyError(
      `The lock key ${quote(key)} contains "#{", which only decorators understand: in code, write lockKey\`order:\${order.id}\``,
    );
  }
  if (key.length > SURELY_SHORT && (key.length > MAX_KEY_BYTES || Buffer.byteLength(key) > MAX_KEY_BYTES)) {
    throw new LockKeyError(
      `The lock key ${quote(key)} is longer than ${MAX_KEY_BYTES} bytes: use an id or a hash instead`,
    );
  }
  // UTF-8 replaces every lone surrogate with U+FFFD, so two different keys could become the same lock.
  if (LONE_SURROGATE.test(key)) {
    throw new LockKeyError(`The lock key ${quote(key)} is not well-formed Unicode: it contains a lone surrogate`);
  }
}
