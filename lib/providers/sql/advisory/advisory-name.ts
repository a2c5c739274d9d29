import { hash } from 'node:crypto';

// The limit of MySQL; MariaDB takes 192.
const LONGEST = 64;
const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';

/**
 * The name of a user lock (`GET_LOCK`): 31 readable characters, `#`, and 160 bits of SHA-256. User locks are one space for
 * the whole server, so the name contains the database too. MySQL takes 64 characters and compares them in lower case, which is
 * why the hash is spelled in base32. Two keys have the same name with a probability of 2^-160.
 */
export function userLockName(database: string, namespace: string, key: string): string {
  // Servers differ in whether `Shop` and `shop` are one database. Taken for one, locks exclude too much at worst.
  const place = database.toLowerCase();
  const digest = base32(digestOf(place, namespace, key).subarray(0, 20));
  const readable = `${place}:${namespace}:${key}`.slice(0, LONGEST - 1 - digest.length).toLowerCase();
  return `${readable.replace(/[^a-z0-9_.:@/=+,-]/g, '_')}#${digest}`;
}

/**
 * The number of an advisory lock of Postgres, which has one space of 64 bits for each database. Two keys of a million that
 * are held at a time have the same number with a probability of 3 · 10^-8, and then exclude each other; a lock is never held twice.
 */
export function advisoryLockNumber(namespace: string, key: string): string {
  return String(digestOf('', namespace, key).readBigInt64BE());
}

// No part has a NUL but the key, which comes last. UTF-16, because UTF-8 has one spelling for all lone surrogates.
function digestOf(database: string, namespace: string, key: string): Buffer {
  return hash('sha256', Buffer.from(`${database}\0${namespace}\0${key}`, 'utf16le'), 'buffer');
}

/** Of a multiple of five bytes. */
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
