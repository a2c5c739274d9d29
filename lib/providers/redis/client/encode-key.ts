import { createHash } from 'node:crypto';

// A longer key is replaced by its hash, so that callers who choose keys cannot fill the server's memory with names.
const LONGEST_KEY = 512;

// `}` begins the suffixes of our records, `~` begins an escape, control characters would garble MONITOR and redis-cli, and
// every lone surrogate becomes the same three bytes in UTF-8, so different keys would become one.
const NEEDS_ESCAPE = /[~}\p{Cc}\p{Surrogate}]/u;
const ESCAPED = new RegExp(NEEDS_ESCAPE, 'gu');

/** Keeps keys readable where it can, and distinct always. */
export function encodeKey(key: string): string {
  if (key.length > LONGEST_KEY) {
    // UTF-16, since UTF-8 would merge lone surrogates. `~~` cannot come from an escape.
    return `~~${createHash('sha256').update(Buffer.from(key, 'utf16le')).digest('hex')}`;
  }
  return encodeCharacters(key);
}

/** A part of a key, as it is in the name of a key that is not replaced by its hash. */
export function encodeCharacters(text: string): string {
  return NEEDS_ESCAPE.test(text) ? text.replace(ESCAPED, escape) : text;
}

/** The key of an encoded one. A hash is answered as it is. */
export function decodeKey(encoded: string): string {
  if (encoded.startsWith('~~')) return encoded;
  return encoded.replace(/~([0-9a-f]{4})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
}

function escape(character: string): string {
  return `~${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
