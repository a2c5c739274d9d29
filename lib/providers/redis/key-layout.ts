import { createHash } from 'node:crypto';

/**
 * How many buckets the locks of a namespace are spread over. All records of one lock live in one hash slot, so that a Redis
 * Cluster could run the script. Fixed for ever: two versions of this package that differ here would not see each other's locks.
 */
export const BUCKETS = 16;

// A longer key is replaced by its hash, so that whoever chooses keys cannot fill the server's memory with names.
const LONGEST_KEY = 512;

// `}` begins the suffixes of our records, `~` begins an escape; control characters would garble MONITOR and redis-cli; and
// every lone surrogate becomes the same three bytes in UTF-8, so that different keys would meet.
const NEEDS_ESCAPE = /[~}\p{Cc}\p{Surrogate}]/u;
const ESCAPED = new RegExp(NEEDS_ESCAPE, 'gu');

/** The names of a namespace's records in Redis. */
export class KeyLayout {
  /**
   * The key under which numbers are counted, for tokens and tickets; the name of the record of processes begins with it. On a
   * single server one is enough for all buckets, and lets one call carry operations on locks of all. In a Cluster each bucket has
   * its own, see {@link counterOf}.
   */
  readonly counter: string;
  readonly #namespace: string;

  constructor(namespace: string) {
    this.#namespace = namespace;
    this.counter = this.counterOf(0);
  }

  /** The counter of a bucket in a Cluster, in the hash slot of its locks. */
  counterOf(bucket: number): string {
    return `${this.#namespace}:{${bucket}}`;
  }

  /** The bucket that is named in the key of a lock. */
  bucketIn(lock: string): number {
    return Number.parseInt(lock.slice(this.#namespace.length + 2), 10);
  }

  /** The key of a lock, with which the names of its queue and its readers begin. */
  lockOf(key: string): string {
    return `${this.#namespace}:{${bucketOf(key)}}:${encodeKey(key)}`;
  }

  /** The channel on which a process is told of its grants: begins with the counter, as the script has it. */
  channelOf(process: string, counter = this.counter): string {
    return counter + process;
  }
}

/** Keeps keys readable where it can, and distinct always. */
export function encodeKey(key: string): string {
  if (key.length > LONGEST_KEY) {
    // UTF-16, since UTF-8 would merge lone surrogates. `~~` cannot come from an escape.
    return `~~${createHash('sha256').update(Buffer.from(key, 'utf16le')).digest('hex')}`;
  }
  return NEEDS_ESCAPE.test(key) ? key.replace(ESCAPED, escape) : key;
}

function escape(character: string): string {
  return `~${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** FNV-1a over the UTF-16 code units: 20 ns for a usual key. */
function bucketOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < key.length; index += 1) hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
  return (hash >>> 0) % BUCKETS;
}
