import type { LockKey } from './lock-key.js';

// One scan without backtracking, since every key comes by here. `[object Object]` is what an object becomes in a text.
const MISSING = /(?:^|[:/])(undefined|null|NaN|Invalid Date|\[object [^:/]*)(?:$|[:/])/;

/** A key of which a whole segment is the text of a value that is missing, or that has no text of its own. */
export interface MissingValue {
  readonly key: string;
  readonly segment: string;
}

/** The first such key, if there is one. Any calls whose value is missing lock it together. */
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
