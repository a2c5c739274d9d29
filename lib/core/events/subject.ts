import type { LockEvent } from '../../api/lock-events.js';

/** Where a lock is declared. Used in messages, and as metric labels with bounded cardinality. */
export type LockOrigin = Pick<LockEvent, 'method' | 'template'>;

/** Identifies a lock in a message, by its key, its provider, and the requesting method. */
export function nameOf(subject: Pick<LockEvent, 'key' | 'provider' | 'method'>): string {
  return `Lock ${placeOf(subject)} (provider "${subject.provider}")`;
}

/** Identifies another lock in the same message, without the provider. */
export function placeOf({ key, method }: Pick<LockEvent, 'key' | 'method'>): string {
  return `"${abbreviate(key)}"${method === null ? '' : ` of ${method}`}`;
}

/**
 * The part of a key before the first `:`, such as `order` for `order:42`. It replaces the template for keys without
 * one.
 */
export function familyOf(key: string): string {
  const end = key.indexOf(':');
  return end === -1 ? key : key.slice(0, end);
}

// Keys can be up to 4,096 bytes long. A message shows enough to recognize the key; the error's `key` contains it in
// full.
function abbreviate(key: string): string {
  return key.length <= 100 ? key : `${key.slice(0, 100)}…`;
}
