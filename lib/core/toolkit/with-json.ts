import { errorInJson, isError } from '../../api/cause.js';

/**
 * Adds a JSON form to an object that applications may log: `JSON.stringify` throws for a fencing token, which is a
 * bigint, and shows an error as `{}`.
 */
export function withJson<T extends object>(value: T): T {
  // Not enumerable, so copies and comparisons don't include it.
  return Object.defineProperty(value, 'toJSON', { value: toJson, configurable: true });
}

function toJson(this: object): object {
  const fields = Object.entries(this).map(([name, value]: [string, unknown]) => [
    name,
    typeof value === 'bigint' ? String(value) : isError(value) ? errorInJson(value) : value,
  ]);
  return Object.fromEntries(fields) as object;
}
