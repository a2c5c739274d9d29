import { isDate } from 'node:util/types';
import { LockKeyError } from '../api/errors.js';
import { MAX_KEY_BYTES } from './lock-key.js';

/** A value that a key can contain. */
export type KeyValue = string | number | bigint | boolean | Date;

// The separators, the escape character, and control characters, which could forge log lines. Also matches a '#' that
// could become part of '#{': keys with '#{' are rejected, because they are unevaluated templates.
const ENCODED = /[%:/\p{Cc}]|#(?=\{|$)/gu;
const SEPARATOR = /[:/]/;
const LONE_SURROGATE = /\p{Surrogate}/u;
const NEEDS_NO_ENCODING = /^[\w.@-]+$/;

/**
 * Encodes a value for a key. `%`, `:`, `/` and control characters are percent-encoded, so different texts never become
 * the same key part, and one value never looks like two parts. All other characters stay unchanged, so ordinary
 * keys remain readable. Unicode is not normalized: the composed and the decomposed form of `é` are different values.
 *
 * @param describe names the value in an error message, such as `#{order.id} in the lock key of OrderService.pay`
 * @throws LockKeyError for a value whose text identifies nothing (`undefined`, `null`, `''`) or is the same for
 * different values (`[object Object]`, `NaN`)
 */
export function encodeKeyValue(value: unknown, describe: () => string): string {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return `${value}`;
  const text = textOf(value);
  if (text === undefined) throw new LockKeyError(`${describe()} ${objectionTo(value)}`);
  // Checked before encoding, which may triple the length.
  if (text.length > MAX_KEY_BYTES) {
    throw new LockKeyError(`${describe()} is too long for a key: use an id or a hash instead`);
  }
  if (NEEDS_NO_ENCODING.test(text)) return text;
  if (LONE_SURROGATE.test(text)) {
    // UTF-8 replaces every lone surrogate with U+FFFD, so two different values could become the same key.
    throw new LockKeyError(`${describe()} is not well-formed Unicode: it contains a lone surrogate`);
  }
  return text.replace(ENCODED, encodeURIComponent);
}

/**
 * Whether literal text separates the values before and after it. It must contain a `:` or a `/`, which an encoded value
 * never contains. Without a separator, `1` and `23` would produce the same key as `12` and `3`.
 */
export function separatesValues(literal: string): boolean {
  return SEPARATOR.test(literal);
}

function textOf(value: unknown): string | undefined {
  switch (typeof value) {
    case 'string':
      return value === '' ? undefined : value;
    case 'number':
      return Number.isFinite(value) ? `${value}` : undefined;
    case 'bigint':
    case 'boolean':
      return `${value}`;
    default:
      // Calls the prototype's methods, because an object may override them. toISOString() throws for an invalid Date.
      return isDate(value) && !Number.isNaN(Date.prototype.getTime.call(value))
        ? Date.prototype.toISOString.call(value)
        : undefined;
  }
}

function objectionTo(value: unknown): string {
  if (value === undefined || value === null) return `is ${value}: make sure it is set, or give it a default`;
  if (value === '') return 'is an empty string: make sure it is set, or give it a default';
  if (typeof value === 'number') return `is ${value}: a number in a key must be finite`;
  if (isDate(value)) return 'is an invalid Date: create it from a valid string or timestamp';
  if (typeof value === 'object') return 'is an object: name one of its properties, or use [*] for list items';
  return `is a ${typeof value}: use a string, a finite number, a bigint, a boolean, or a Date`;
}
