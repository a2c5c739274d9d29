import { hash } from 'node:crypto';

// MySQL's limit; MariaDB allows 192.
const LONGEST = 64;
const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';

/**
 * The name of a user lock (`GET_LOCK`): 31 readable characters, `#`, and 160 bits of SHA-256. User locks are global to
 * the server, so the name also contains the database. MySQL allows 64 characters and compares them in lower case, so
 * the hash is in base32. Two keys share a name with a probability of 2^-160.
 */
export function userLockName(database: string, namespace: string, key: string): string {
  // Whether `Shop` and `shop` are the same database depends on the server. At worst, locks exclude each other
  // unnecessarily.
  const place = database.toLowerCase();
  const digest = base32(digestOf(place, namespace, key).subarray(0, 20));
  const readable = `${place}:${namespace}:${key}`.slice(0, LONGEST - 1 - digest.length).toLowerCase();
  return `${readable.replace(/[^a-z0-9_.:@/=+,-]/g, '_')}#${digest}`;
}

/**
 * The number of a Postgres advisory lock: 64 bits, local to its database. Among a million keys held at the same time,
 * two share a number with a probability of 3 · 10^-8. They then exclude each other, but mutual exclusion never breaks.
 */
export function advisoryLockNumber(namespace: string, key: string): string {
  return String(digestOf('', namespace, key).readBigInt64BE());
}

// NUL is a safe separator: only the key, which comes last, may contain it. Hash UTF-16, because UTF-8 encodes all lone
// surrogates alike.
function digestOf(database: string, namespace: string, key: string): Buffer {
  return hash('sha256', Buffer.from(`${database}\0${namespace}\0${key}`, 'utf16le'), 'buffer');
}

/** Encodes a multiple of five bytes. */
function base32(bytes: Uint8Array): string {
  let text = '';
  let rest = 0;
  let bits = 0;
  for (const byte of bytes) {
    rest = ((rest & 31) << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += BASE32[(rest >> (bits - 5)) & 31] ?? '';
  }
  return text;
}
