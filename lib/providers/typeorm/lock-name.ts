import { createHash } from 'node:crypto';

// Together with the longest namespace (64) and the hash (43) well below the 255 bytes of the column.
const LONGEST_READABLE = 120;
const READABLE = /^[A-Za-z0-9_.:@/=+,-]+$/;
const PREFIX = 40;
const COUNTERS = 16;

/**
 * The name of a key's row: `shop:order:42` if it is short and of harmless characters, else `shop:` + the readable part
 * of its beginning + `#` + SHA-256. No readable key contains `#`, so no two keys have the same row. Only ASCII, because
 * collations of servers differ in which characters they take for equal.
 */
export function rowNameOf(namespace: string, key: string): string {
  if (key.length <= LONGEST_READABLE && READABLE.test(key)) return `${namespace}:${key}`;
  const beginning = key.slice(0, PREFIX).replace(/[^A-Za-z0-9_.:@/=+,-]/g, '_');
  return `${namespace}:${beginning}#${createHash('sha256').update(key, 'utf16le').digest('base64url')}`;
}

/** The name of a key's row for a lease: another name than for a row lock, which would block it. */
export function leaseNameOf(namespace: string, key: string): string {
  // A namespace has no '#': no lease meets a row lock.
  return rowNameOf(`${namespace}#lease`, key);
}

/** The row of the fencing counter of a key: one of 16 in a namespace, never one for each key. Never change it. */
export function counterNameOf(namespace: string, key: string): string {
  const bucket = (createHash('sha256').update(key, 'utf16le').digest()[0] ?? 0) % COUNTERS;
  // A namespace has no '#': no counter meets a key.
  return `${namespace}#fence:${bucket}`;
}
