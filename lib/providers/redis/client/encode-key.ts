import { createHash } from 'node:crypto';

// Longer keys are hashed, so users who can choose keys can't use them to fill the server's memory.
const LONGEST_KEY = 512;

// `}` starts the suffixes of our records, and `~` starts an escape. Control characters would garble MONITOR and
// redis-cli. All lone surrogates are encoded as the same three bytes in UTF-8, so different keys would collide.
const NEEDS_ESCAPE = /[~}\p{Cc}\p{Surrogate}]/u;
const ESCAPED = new RegExp(NEEDS_ESCAPE, 'gu');

/** Encodes a key. Different keys always have different encodings, and most stay readable. */
export function encodeKey(key: string): string {
  if (key.length > LONGEST_KEY) {
    // Hash as UTF-16, because lone surrogates would collide in UTF-8. No escape produces `~~`.
    return `~~${createHash('sha256').update(Buffer.from(key, 'utf16le')).digest('hex')}`;
  }
  return encodeCharacters(key);
}

/** Encodes part of a key the way {@link encodeKey} encodes keys that it doesn't hash. */
export function encodeCharacters(text: string): string {
  return NEEDS_ESCAPE.test(text) ? text.replace(ESCAPED, escape) : text;
}

/** Reverses {@link encodeKey}. A hash is returned as is. */
export function decodeKey(encoded: string): string {
  if (encoded.startsWith('~~')) return encoded;
  return encoded.replace(/~([0-9a-f]{4})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
}

function escape(character: string): string {
  return `~${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
