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

/** The name of a key's lease row. It differs from the row lock's name, because a row lock would block the lease. */
export function leaseNameOf(namespace: string, key: string): string {
  // Namespaces contain no '#', so leases and row locks never share a row.
  return rowNameOf(`${namespace}#lease`, key);
}

/**
 * What to store in the `label` column: a lease's key or a record's name; `null` if the row name already shows
 * it.
 */
export function leaseLabelOf(key: string): string | null {
  return isReadable(key) ? null : labelOf(key);
}

/** A lease row's key. */
export function keyOfLease(namespace: string, name: string, label: string | null): string {
  return label === null ? name.slice(`${namespace}#lease:`.length) : textOfLabel(label);
}

/** The range of names covering all leases with this key prefix, and possibly others. */
export function leaseNamesBetween(namespace: string, prefix: string): readonly [string, string] {
  const first = `${namespace}#lease:${beginningOf(prefix)}`;
  // The tilde sorts after every character in a name.
  return [first, `${first}~`];
}

/** A lease row's namespace; `undefined` for other rows. */
export function namespaceOfLease(name: string): string | undefined {
  return /^([A-Za-z0-9_.-]{1,64})#lease:/.exec(name)?.[1];
}

/** A job's last run, or a failover's epoch. The hourly purge skips both. */
export type RecordKind = 'run' | 'failover';

/** The name of a record's row. */
export function recordNameOf(namespace: string, kind: RecordKind, name: string): string {
  return rowNameOf(`${namespace}#${kind}`, name);
}

/** The name of the record in a row. */
export function nameOfRecord(namespace: string, kind: RecordKind, row: string, label: string | null): string {
  return label === null ? row.slice(`${namespace}#${kind}:`.length) : textOfLabel(label);
}

/** The name range for all records of one kind. */
export function recordNamesOf(namespace: string, kind: RecordKind): readonly [string, string] {
  return [`${namespace}#${kind}:`, `${namespace}#${kind}:~`];
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

export function textOfLabel(label: string): string {
  return JSON.parse(label) as string;
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
