import type { LockKey } from './lock-key.js';

// Matches without backtracking, because every key is checked. `[object Object]` is an object converted to text.
const MISSING = /(?:^|[:/])(undefined|null|NaN|Invalid Date|\[object [^:/]*)(?:$|[:/])/;

/** A key in which a segment is the text of an object or of a missing value, such as `undefined`. */
export interface MissingValue {
  readonly key: string;
  readonly segment: string;
}

/** The first key with a missing value, if any. All calls without the value would share that key. */
export function missingValueIn(key: LockKey): MissingValue | undefined {
  if (typeof key === 'string') {
    const segment = MISSING.exec(key)?.[1];
    return segment === undefined ? undefined : { key, segment };
  }
  for (const each of Array.isArray(key) ? (key as readonly unknown[]) : []) {
    const missing = typeof each === 'string' ? missingValueIn(each) : undefined;
    if (missing) return missing;
  }
  return undefined;
}
