import { createHash } from 'node:crypto';

// Longer names are hashed, because the server keeps all names in memory.
const LONGEST = 200;
const SESSIONS = '%sessions';
const RECORDS = '%records';
// Below `%records`, so that older versions don't mistake it for a key's folder.
const JOBS = '%jobs';
const HASHED = '%sha256-';
const LONE_SURROGATE = /\p{Surrogate}/u;

/**
 * Encodes any text as one path segment. Services in other languages compute the same segment: UTF-8, percent-encoded
 * except for letters, digits, and `-_.~:` (Python: `urllib.parse.quote(key, safe=':')`). A `%` followed by anything but
 * two hex digits marks a reserved name, such as `%sha256-` followed by the hash of the UTF-16 encoding, for text that
 * is too long or isn't valid Unicode.
 */
export function segmentOf(text: string): string {
  // ZooKeeper interprets these as relative paths.
  if (text === '.' || text === '..') return text.replaceAll('.', '%2E');
  if (text.length <= LONGEST && !LONE_SURROGATE.test(text)) {
    const encoded = encodeURIComponent(text).replace(/%3A|[!*'()]/g, (found) =>
      found === '%3A' ? ':' : `%${found.charCodeAt(0).toString(16).toUpperCase()}`,
    );
    if (encoded.length <= LONGEST) return encoded;
  }
  return `${HASHED}${createHash('sha256').update(text, 'utf16le').digest('hex')}`;
}

/** Whether the folder name is a hash, so the key can't be decoded from it. */
export function isHashed(segment: string): boolean {
  return segment.startsWith(HASHED);
}

/** The content of a folder with a hashed name, from which `list` reads the key. Undefined for other folders. */
export function folderContentFor(folder: string, key: string): Buffer | undefined {
  // JSON can also represent invalid Unicode.
  return isHashed(folder.slice(folder.lastIndexOf('/') + 1)) ? Buffer.from(JSON.stringify(key)) : undefined;
}

/**
 * Reads the key from the content of a hashed folder. Undefined for any other content, such as content from an older
 * version.
 */
export function keyIn(content: Buffer, segment: string): string | undefined {
  try {
    const key: unknown = JSON.parse(content.toString());
    return typeof key === 'string' && segmentOf(key) === segment ? key : undefined;
  } catch {
    return undefined;
  }
}

/** A namespace's paths. */
export class LockPaths {
  /** The parent of all other paths. */
  readonly namespace: string;
  /** The parent of the session nodes, to which heartbeats are written. */
  readonly sessions: string;
  /** The parent of failover records. */
  readonly failovers: string;
  /** The parent of job records. */
  readonly jobs: string;

  constructor(root: string, namespace: string) {
    this.namespace = `${root}/${segmentOf(namespace)}`;
    this.sessions = `${this.namespace}/${SESSIONS}`;
    this.failovers = `${this.namespace}/${RECORDS}`;
    this.jobs = `${this.failovers}/${JOBS}`;
  }

  /** The parent of the nodes that hold the lock or wait for it. */
  folderOf(key: string): string {
    return `${this.namespace}/${segmentOf(key)}`;
  }

  /**
   * Decodes a folder name. Returns the name itself if it can't be decoded, and undefined if it doesn't belong to a key.
   */
  keyOf(segment: string): string | undefined {
    if (segment === SESSIONS || segment === RECORDS) return undefined;
    // Fast path: most names contain no escapes, and a list may decode 100,000 of them in one tick.
    if (!segment.includes('%')) return segment;
    try {
      const key = decodeURIComponent(segment);
      return segmentOf(key) === segment ? key : segment;
    } catch {
      return segment;
    }
  }
}
