import { createHash } from 'node:crypto';

// With the longest namespace (64 characters) well below the 250 bytes of a key.
const LONGEST_READABLE = 160;
// The characters that the protocol allows, except for the one that begins a hash.
const READABLE = /^[!"$-~]+$/;

/**
 * The name of a key's item: `shop:order:42` if it is short and printable ASCII, else `shop:#` + SHA-256. No readable key has
 * a `#` and no namespace a `:`, so no two keys have the same name. Never change it: two versions that differ here would not see each
 * other's locks.
 */
export function itemKeyOf(namespace: string, key: string): string {
  if (key.length <= LONGEST_READABLE && READABLE.test(key)) return `${namespace}:${key}`;
  // UTF-16, because UTF-8 has one encoding for all lone surrogates.
  return `${namespace}:#${createHash('sha256').update(key, 'utf16le').digest('base64url')}`;
}
