import { createHash } from 'node:crypto';

// Together with the longest namespace (64) and the hash (43) well below the 255 bytes of the column.
const LONGEST_READABLE = 120;
const READABLE = /^[A-Za-z0-9_.:@/=+,-]+$/;
const PREFIX = 40;
const COUNTERS = 16;

/**
 * The name of a key's row: `shop:order:42` if it is short and of harmless characters, else `shop:` + the readable part
 * of its beginning + `#` + SHA-256. No readable key contains `#`, so no two keys have the same row. Only ASCII, because
 * collations of servers differ in which characters they take for equal.
 */
export function rowNameOf(namespace: string, key: string): string {
  if (isReadable(key)) return `${namespace}:${key}`;
  return `${namespace}:${beginningOf(key)}#${createHash('sha256').update(key, 'utf16le').digest('base64url')}`;
}

/** The name of a key's row for a lease: another name than for a row lock, which would block it. */
export function leaseNameOf(namespace: string, key: string): string {
  // A namespace has no '#': no lease meets a row lock.
  return rowNameOf(`${namespace}#lease`, key);
}

/** The key of a lease, or the name of a record, for the column `label`; `null` where the name of the row shows it. */
export function leaseLabelOf(key: string): string | null {
  return isReadable(key) ? null : labelOf(key);
}

/** The key of the row of a lease. */
export function keyOfLease(namespace: string, name: string, label: string | null): string {
  return label === null ? name.slice(`${namespace}#lease:`.length) : textOfLabel(label);
}

/** Between which names the rows of all leases are whose keys begin with `prefix`, and rows of other keys. */
export function leaseNamesBetween(namespace: string, prefix: string): readonly [string, string] {
  const first = `${namespace}#lease:${beginningOf(prefix)}`;
  // The tilde comes after every character of a name.
  return [first, `${first}~`];
}

/** The namespace of a lease with this name; `undefined` for other rows. */
export function namespaceOfLease(name: string): string | undefined {
  return /^([A-Za-z0-9_.-]{1,64})#lease:/.exec(name)?.[1];
}

/** What a record keeps: the last run of a job, or the epoch of a failover. The purge of each hour passes over the names of both. */
export type RecordKind = 'run' | 'failover';

/** The name of a record's row. */
export function recordNameOf(namespace: string, kind: RecordKind, name: string): string {
  return rowNameOf(`${namespace}#${kind}`, name);
}

/** The name of the record in this row. */
export function nameOfRecord(namespace: string, kind: RecordKind, row: string, label: string | null): string {
  return label === null ? row.slice(`${namespace}#${kind}:`.length) : textOfLabel(label);
}

/** Between which names the rows of all records of a kind are. */
export function recordNamesOf(namespace: string, kind: RecordKind): readonly [string, string] {
  return [`${namespace}#${kind}:`, `${namespace}#${kind}:~`];
}

/** The row that has the name of an instance as its label. */
export function instanceNameOf(namespace: string, id: string): string {
  return `${namespace}#instance:${id}`;
}

/** Between which names the rows of the leases and instances of a namespace are. */
export function leasesAndInstancesOf(namespace: string): readonly [string, string] {
  return [`${namespace}#instance:`, `${namespace}#lease:~`];
}

/** The row whose lease says that somebody cleans the table. No range above contains it. */
export function purgeNameOf(namespace: string): string {
  return `${namespace}#purge`;
}

/** The namespace of the locks by which a process tests the database at its start. No application has it. */
export function probeNamespaceOf(namespace: string): string {
  return `${namespace}#probe:start`;
}

/** As text that each database can keep, whatever its encoding. */
export function labelOf(text: string): string {
  return JSON.stringify(text).replace(
    /[\u007f-\uffff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

export function textOfLabel(label: string): string {
  return JSON.parse(label) as string;
}

/** The row of the fencing counter of a key: one of 16 in a namespace, never one for each key. Never change it. */
export function counterNameOf(namespace: string, key: string): string {
  const bucket = (createHash('sha256').update(key, 'utf16le').digest()[0] ?? 0) % COUNTERS;
  // A namespace has no '#': no counter meets a key.
  return `${namespace}#fence:${bucket}`;
}

function isReadable(key: string): boolean {
  return key.length <= LONGEST_READABLE && READABLE.test(key);
}

function beginningOf(key: string): string {
  return key.slice(0, PREFIX).replace(/[^A-Za-z0-9_.:@/=+,-]/g, '_');
}
