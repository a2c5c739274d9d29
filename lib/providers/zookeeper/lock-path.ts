import { createHash } from 'node:crypto';

// Longer names are hashed: the server keeps all names in memory.
const LONGEST = 200;
const SESSIONS = '%sessions';
const RECORDS = '%records';
// Below the one above, so that older versions do not take it for the folder of a key.
const JOBS = '%jobs';
const HASHED = '%sha256-';
const LONE_SURROGATE = /\p{Surrogate}/u;

/**
 * One part of a path for any text, so that services in other languages find the same path: percent-encoded UTF-8 of all but
 * letters, digits and `-_.~:` (Python: `urllib.parse.quote(key, safe=':')`). Names that begin with `%` and no two digits are our own:
 * `%sha256-` and the hash of the UTF-16 for a text that is too long, or is not valid Unicode.
 */
export function segmentOf(text: string): string {
  // ZooKeeper takes these for relative paths.
  if (text === '.' || text === '..') return text.replaceAll('.', '%2E');
  if (text.length <= LONGEST && !LONE_SURROGATE.test(text)) {
    const encoded = encodeURIComponent(text).replace(/%3A|[!*'()]/g, (found) =>
      found === '%3A' ? ':' : `%${found.charCodeAt(0).toString(16).toUpperCase()}`,
    );
    if (encoded.length <= LONGEST) return encoded;
  }
  return `${HASHED}${createHash('sha256').update(text, 'utf16le').digest('hex')}`;
}

/** Whether the key cannot be read from this name of a folder. */
export function isHashed(segment: string): boolean {
  return segment.startsWith(HASHED);
}

/** The content of a folder whose name is a hash, from which a list learns the key; undefined for other folders. */
export function folderContentFor(folder: string, key: string): Buffer | undefined {
  // JSON also has a form for what is not valid Unicode.
  return isHashed(folder.slice(folder.lastIndexOf('/') + 1)) ? Buffer.from(JSON.stringify(key)) : undefined;
}

/** The key whose hash is this name of a folder; undefined if the folder contains something else, as that of an older version does. */
export function keyIn(content: Buffer, segment: string): string | undefined {
  try {
    const key: unknown = JSON.parse(content.toString());
    return typeof key === 'string' && segmentOf(key) === segment ? key : undefined;
  } catch {
    return undefined;
  }
}

/** Where the nodes of a namespace are. */
export class LockPaths {
  /** The parent of all below. */
  readonly namespace: string;
  /** Where each session of a process has a node of its own, for its heartbeats. */
  readonly sessions: string;

  constructor(root: string, namespace: string) {
    this.namespace = `${root}/${segmentOf(namespace)}`;
    this.sessions = `${this.namespace}/${SESSIONS}`;
  }

  /** The parent of the records of failovers. */
  get failovers(): string {
    return `${this.namespace}/${RECORDS}`;
  }

  /** The parent of the records of all jobs. */
  get jobs(): string {
    return `${this.failovers}/${JOBS}`;
  }

  /** The parent of the nodes of all requests that have the lock or wait for it. */
  folderOf(key: string): string {
    return `${this.namespace}/${segmentOf(key)}`;
  }

  /** The key whose folder has this name; the name itself where no key can be read from it, and undefined for what is no key's. */
  keyOf(segment: string): string | undefined {
    if (segment === SESSIONS || segment === RECORDS) return undefined;
    // Most names need no decoding, and a list reads 100 000 of them in one tick.
    if (!segment.includes('%')) return segment;
    try {
      const key = decodeURIComponent(segment);
      return segmentOf(key) === segment ? key : segment;
    } catch {
      return segment;
    }
  }
}
