import { LockKeyError } from '../api/errors.js';
import { quote } from './quote.js';

/** The subject of a lock: one key, or several that are locked together, all or nothing. */
export type LockKey = string | readonly string[];

/** How many keys one lock may have. */
export const MAX_KEYS = 100;

/** How many bytes one key may have in UTF-8. A longer one is data by mistake, which every request to a backend would carry. */
export const MAX_KEY_BYTES = 4_096;

const LONE_SURROGATE = /\p{Surrogate}/u;

// UTF-8 needs at most three bytes for one UTF-16 code unit, so that most keys need no counting.
const SURELY_SHORT = Math.floor(MAX_KEY_BYTES / 3);

/**
 * The keys of one lock in the order in which every process takes them: sorted by UTF-16 code units, each key once.
 *
 * @throws LockKeyError where a key cannot be used: not a string, empty, a template, malformed, too long; or none or too many of them.
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
    throw new LockKeyError(`A lock takes at most ${MAX_KEYS} keys, got ${keys.length}: lock what they have in common`);
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
      `The lock key ${quote(key)} is longer than ${MAX_KEY_BYTES} bytes: name what is locked by an id or a hash`,
    );
  }
  // On the wire every lone surrogate becomes U+FFFD, so that two such keys would be one lock.
  if (LONE_SURROGATE.test(key)) {
    throw new LockKeyError(`The lock key ${quote(key)} is not well-formed Unicode: it holds half of a surrogate pair`);
  }
}
