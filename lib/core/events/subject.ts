import type { LockEvent } from '../../api/lock-events.js';

/** Where a lock is declared: for messages, and for labels of bounded cardinality. */
export type LockOrigin = Pick<LockEvent, 'method' | 'template'>;

/** How messages name a lock: its key, its provider and the method that wants it. */
export function nameOf(subject: Pick<LockEvent, 'key' | 'provider' | 'method'>): string {
  return `Lock ${placeOf(subject)} (provider "${subject.provider}")`;
}

/** How messages name a further lock: its key, and the method that wants it. */
export function placeOf({ key, method }: Pick<LockEvent, 'key' | 'method'>): string {
  return `"${abbreviate(key)}"${method === null ? '' : ` of ${method}`}`;
}

/** The text before the first `:` of a key, which stands for the template of keys without one: `order` of `order:42`. */
export function familyOf(key: string): string {
  const end = key.indexOf(':');
  return end === -1 ? key : key.slice(0, end);
}

// A key may have 4 096 bytes; a message shows enough of it to find it again. The error has all of it.
function abbreviate(key: string): string {
  return key.length <= 100 ? key : `${key.slice(0, 100)}…`;
}
