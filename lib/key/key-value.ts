import { isDate } from 'node:util/types';
import { LockKeyError } from '../api/errors.js';
import { MAX_KEY_BYTES } from './lock-key.js';

/** A value that a key can contain. */
export type KeyValue = string | number | bigint | boolean | Date;

// The separators, the escape character itself and control characters, which could forge lines in a log. '#' only where it could become
// the beginning of an expression: a key that contains '#{' is a template by mistake, and is refused.
const ENCODED = /[%:/\p{Cc}]|#(?=\{|$)/gu;
const SEPARATOR = /[:/]/;
const LONE_SURROGATE = /\p{Surrogate}/u;
const NEEDS_NO_ENCODING = /^[\w.@-]+$/;

/**
 * One value as it appears in a key. `%`, `:`, `/` and control characters are percent-encoded, so different texts never become the same
 * part of a key, and a value never looks like two parts. Everything else is inserted as it is, so the key of an ordinary value is the
 * one that a person would write. Text is not normalized: `é` in its composed and in its decomposed form are two values.
 *
 * @param describe names the value in an error message, such as `#{order.id} in the lock key of OrderService.pay`
 * @throws LockKeyError for whatever would name nothing (`undefined`, `null`, `''`) or many things alike (`[object Object]`, `NaN`)
 */
export function encodeKeyValue(value: unknown, describe: () => string): string {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return `${value}`;
  const text = textOf(value);
  if (text === undefined) throw new LockKeyError(`${describe()} ${objectionTo(value)}`);
  // Before the encoding, which would triple a text that no key has room for.
  if (text.length > MAX_KEY_BYTES) {
    throw new LockKeyError(`${describe()} is longer than a key may be: use an id or a hash of it`);
  }
  if (NEEDS_NO_ENCODING.test(text)) return text;
  if (LONE_SURROGATE.test(text)) {
    // On the wire every lone surrogate becomes U+FFFD, so that two such values would be one.
    throw new LockKeyError(`${describe()} is not well-formed Unicode: it holds half of a surrogate pair`);
  }
  return text.replace(ENCODED, encodeURIComponent);
}

/**
 * Whether a literal text keeps the values on its two sides apart: it must hold a `:` or a `/`, which no encoded value holds.
 * Without one, `1` and `23` would make the same key as `12` and `3`.
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
      // Through the prototype, because an object may bring a toISOString of its own; it throws for an invalid Date.
      return isDate(value) && !Number.isNaN(Date.prototype.getTime.call(value))
        ? Date.prototype.toISOString.call(value)
        : undefined;
  }
}

function objectionTo(value: unknown): string {
  if (value === undefined || value === null) return `is ${value}: make sure that it is set, or give it a default`;
  if (value === '') return 'is an empty string: make sure that it is set, or give it a default';
  if (typeof value === 'number') return `is ${value}: a number in a key must be finite`;
  if (isDate(value)) return 'is an invalid Date: make sure that it was made of a valid text or time';
  if (typeof value === 'object') return 'is an object: name one of its properties, and [*] for the items of a list';
  return `is a ${typeof value}: use a string, a finite number, a bigint, a boolean or a Date`;
}
