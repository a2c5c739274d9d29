import { createHash } from 'node:crypto';

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
  const hash = base32(digestOf(place, namespace, key).subarray(0, 20));
  const readable = `${place}:${namespace}:${key}`.slice(0, LONGEST - 1 - hash.length).toLowerCase();
  return `${readable.replace(/[^a-z0-9_.:@/=+,-]/g, '_')}#${hash}`;
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
  return createHash('sha256').update(`${database}\0${namespace}\0${key}`, 'utf16le').digest();
}

/** Of a multiple of five bytes. */
function base32(bytes: Uint8Array): string {
  let text = '';
  for (let index = 0; index < bytes.length; index += 5) {
    const block = bytes.subarray(index, index + 5).reduce((sum, byte) => sum * 256 + byte, 0);
    for (let digit = 7; digit >= 0; digit -= 1) text += BASE32[Math.floor(block / 32 ** digit) % 32] ?? '';
  }
  return text;
}
