import { isInstanceName, isShortAscii } from '../../api/printable.js';
import { MAX_KEY_BYTES } from '../../key/lock-key.js';
import type { PublishedWait } from './cycle-search.js';
import { isMethodName } from './label-text.js';

const MOST_ID = 100;

/** The text beside a grant: how often it was published, and the waits of those that hold by the grant. */
export function encodeWaits(beat: number, waits: readonly PublishedWait[]): string {
  return JSON.stringify([
    beat,
    ...waits.map(({ id, key, mode, since, instance, method }) => [id, key, mode, since, instance, method]),
  ]);
}

/** Reads such a text. Anybody may have written it who may write to the server, and another version of this package; `undefined` for any other text. */
export function decodeWaits(
  text: string,
): { readonly beat: number; readonly waits: readonly PublishedWait[] } | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(value)) return undefined;
  const [beat, ...rest] = value as unknown[];
  const waits = rest.map(waitIn);
  return typeof beat === 'number' && waits.every((wait) => wait !== undefined) ? { beat, waits } : undefined;
}

function waitIn(value: unknown): PublishedWait | undefined {
  if (!Array.isArray(value)) return undefined;
  const [id, key, mode, since, instance, method] = value as unknown[];
  if (!isShortAscii(id, MOST_ID) || typeof since !== 'number') return undefined;
  // A key may have any characters: errors and logs escape them.
  if (typeof key !== 'string' || key === '' || key.length > MAX_KEY_BYTES) return undefined;
  if (!isInstanceName(instance) || (method !== null && !isMethodName(method))) return undefined;
  return mode === 'exclusive' || mode === 'shared' ? { id, key, mode, since, instance, method } : undefined;
}
