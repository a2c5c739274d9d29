import { createHash } from 'node:crypto';

// Even with the longest namespace (64 characters), names stay below memcached's 250-byte limit.
const LONGEST_READABLE = 160;
// Every character that the protocol allows, except "#", which marks a hash.
const READABLE = /^[!"$-~]+$/;

/**
 * Returns the item's name: `shop:order:42` if the key is short printable ASCII, otherwise `shop:#` and a SHA-256 hash.
 * Readable keys can't contain `#`, and namespaces can't contain `:`, so names are unique. Never change this format: during
 * a rollout, old and new instances wouldn't see each other's locks.
 */
export function itemKeyOf(namespace: string, key: string): string {
  if (key.length <= LONGEST_READABLE && READABLE.test(key)) return `${namespace}:${key}`;
  // Hash as UTF-16, because UTF-8 encodes all lone surrogates identically.
  return `${namespace}:#${createHash('sha256').update(key, 'utf16le').digest('base64url')}`;
}
