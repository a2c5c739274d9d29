import { errorInJson, isError } from '../../api/cause.js';

/** Gives what applications log a JSON form: by itself, JSON refuses a fencing token, and shows nothing of an error. */
export function withJson<T extends object>(value: T): T {
  // Not enumerable, so that copies and comparisons do not see it.
  return Object.defineProperty(value, 'toJSON', { value: toJson, configurable: true });
}

function toJson(this: object): object {
  const fields = Object.entries(this).map(([name, value]: [string, unknown]) => [
    name,
    typeof value === 'bigint' ? String(value) : isError(value) ? errorInJson(value) : value,
  ]);
  return Object.fromEntries(fields) as object;
}
