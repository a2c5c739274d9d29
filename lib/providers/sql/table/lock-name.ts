import { createHash } from 'node:crypto';

// Even with the longest namespace (64) and a hash (43), names fit easily in the column's 255 bytes.
const LONGEST_READABLE = 120;
const READABLE = /^[A-Za-z0-9_.:@/=+,-]+$/;
const PREFIX = 40;
const COUNTERS = 16;

/**
 * The name of a key's row: `shop:order:42` if the key is short and has only safe characters; otherwise `shop:`, a
 * readable prefix, `#`, and a SHA-256 hash. Readable keys don't contain `#`, so two keys never share a row. Names are
 * ASCII only, because collations disagree on which characters are equal.
 */
export function rowNameOf(namespace: string, key: string): string {
  if (isReadable(key)) return `${namespace}:${key}`;
  return `${namespace}:${beginningOf(key)}#${createHash('sha256').update(key, 'utf16le').digest('base64url')}`;
}

/** A job's last run, or a failover's epoch. The hourly purge skips both. */
export type RecordKind = 'run' | 'failover';
export type EntryKind = RecordKind | 'lease';

/** The name of a lease's or a record's row. It differs from a row lock's name, because a row lock would block it. */
export function entryNameOf(namespace: string, kind: EntryKind, key: string): string {
  // Namespaces contain no '#', so leases, records, and row locks never share a row.
  return rowNameOf(`${namespace}#${kind}`, key);
}

/**
 * What to store in the `label` column: a lease's key or a record's name; `null` if the row name already shows
 * it.
 */
export function entryLabelOf(key: string): string | null {
  return isReadable(key) ? null : labelOf(key);
}

/** A lease's key, or a record's name; undefined if the label is not one that {@link labelOf} returns. */
export function keyOfEntry(
  namespace: string,
  kind: EntryKind,
  { name, label }: { readonly name: string | Buffer; readonly label: string | Buffer | null },
): string | undefined {
  return label === null ? name.toString().slice(`${namespace}#${kind}:`.length) : textOfLabel(label.toString());
}

/**
 * The range of names covering all entries of one kind whose keys have this prefix, and possibly others of that kind.
 */
export function entryNamesOf(namespace: string, kind: EntryKind, prefix = ''): readonly [string, string] {
  const first = `${namespace}#${kind}:${beginningOf(prefix)}`;
  // The tilde sorts after every character in a name.
  return [first, `${first}~`];
}

/** A lease row's namespace; `undefined` for other rows. */
export function namespaceOfLease(name: string): string | undefined {
  return /^([A-Za-z0-9_.-]{1,64})#lease:/.exec(name)?.[1];
}

/** The row that stores an instance's name. */
export function instanceNameOf(namespace: string, id: string): string {
  return `${namespace}#instance:${id}`;
}

/** The name range for a namespace's leases and instances. */
export function leasesAndInstancesOf(namespace: string): readonly [string, string] {
  return [`${namespace}#instance:`, `${namespace}#lease:~`];
}

/** The row whose lease shows that a purge is running. It isn't in any of the ranges above. */
export function purgeNameOf(namespace: string): string {
  return `${namespace}#purge`;
}

/** The namespace of the startup probes. Applications can't use it. */
export function probeNamespaceOf(namespace: string): string {
  return `${namespace}#probe:start`;
}

/** Encodes text so that a database with any encoding can store it. */
export function labelOf(text: string): string {
  return JSON.stringify(text).replace(
    /[\u007f-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Undoes {@link labelOf}. Undefined for other text, because any client may write to the table. */
export function textOfLabel(label: string): string | undefined {
  try {
    const text: unknown = JSON.parse(label);
    return typeof text === 'string' ? text : undefined;
  } catch {
    return undefined;
  }
}

/** The row of a key's fencing counter. A namespace has 16 counters, not one per key. Never change this number. */
export function counterNameOf(namespace: string, key: string): string {
  const bucket = (createHash('sha256').update(key, 'utf16le').digest()[0] ?? 0) % COUNTERS;
  // Namespaces contain no '#', so counters and keys never share a row.
  return `${namespace}#fence:${bucket}`;
}

function isReadable(key: string): boolean {
  return key.length <= LONGEST_READABLE && READABLE.test(key);
}

function beginningOf(key: string): string {
  return key.slice(0, PREFIX).replace(/[^A-Za-z0-9_.:@/=+,-]/g, '_');
}
