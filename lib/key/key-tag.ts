import { LockKeyError } from '../api/errors.js';
import { encodeKeyValue, separatesValues, type KeyValue } from './key-value.js';
import { quote } from './quote.js';

// JavaScript passes the same array for each evaluation of a template literal, so each literal is checked only once.
const checked = new WeakSet<TemplateStringsArray>();

/**
 * Builds a key for `LockService` or a key function. Values are checked and encoded as in a key template:
 *
 * ```ts
 * lockKey`order:${order.id}:${line}`
 * ```
 *
 * @throws LockKeyError for a value that a key can't contain, or for two values without a `:` or `/` between them
 */
export function lockKey(literals: TemplateStringsArray, ...values: readonly KeyValue[]): string {
  if (!checked.has(literals)) {
    check(literals);
    checked.add(literals);
  }
  let key = literals[0] ?? '';
  for (let index = 0; index < values.length; index++) {
    key += encodeKeyValue(values[index], () => describe(literals, index));
    key += literals[index + 1] ?? '';
  }
  return key;
}

function check(literals: TemplateStringsArray): void {
  if (literals.length === 1 && literals[0] === '') throw new LockKeyError('A lock key must not be empty');
  const unseparated = literals.slice(1, -1).findIndex((literal) => !separatesValues(literal));
  if (unseparated === -1) return;
  throw new LockKeyError(
    `${describe(literals, unseparated)} needs a ':' or '/' after it, or 1 and 23 would make the same key as 12 and 3`,
  );
}

function describe(literals: TemplateStringsArray, index: number): string {
  return `Value ${index + 1} of the lock key ${quote(literals.join('${…}'))}`;
}
