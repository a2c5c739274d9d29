import { decodeKey, encodeCharacters, encodeKey } from './client/encode-key.js';

/**
 * How many buckets the locks of a namespace are spread over. All records of one lock live in one hash slot, so that a Redis
 * Cluster can run the script. Fixed permanently: two versions of this package that differ here would not see each other's locks.
 */
export const BUCKETS = 16;

// Behind the namespace. No encoded key contains the brace with which the suffixes of queues and readers begin.
const LOCK = /^\{(?:\d|1[0-5])\}:([^}]*)$/s;
const RECORD = /^\{(?:\d|1[0-5])\}record:([^}]*)$/s;

const ANY_LOCK = /^([A-Za-z0-9_.-]{1,64}):\{(?:\d|1[0-5])\}:[^}]*$/s;

/** The pattern by which `SCAN` finds the locks of all namespaces. */
export const ANY_LOCK_PATTERN = '*:{*}:*';

/** The namespace in the name of a lock; `undefined` for any other name. */
export function namespaceIn(name: string): string | undefined {
  return ANY_LOCK.exec(name)?.[1];
}

/** The queue of a lock. */
export function queueOf(lock: string): string {
  return `${lock}}q`;
}

/** The readers or limited holders of a lock. */
export function holdersOf(lock: string): string {
  return `${lock}}r`;
}

/** The record of the processes that wait for locks of this counter. */
export function processesOf(counter: string): string {
  return `${counter}seen`;
}

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

  /** The counters of all buckets in a Cluster. */
  get counters(): readonly string[] {
    return Array.from({ length: BUCKETS }, (_, bucket) => this.counterOf(bucket));
  }

  /** The bucket that is named in the key of a lock. */
  bucketIn(lock: string): number {
    return Number.parseInt(lock.slice(this.#namespace.length + 2), 10);
  }

  /** The key of a lock, with which the names of its queue and its holders begin. */
  lockOf(key: string): string {
    return `${this.#namespace}:{${bucketOf(key)}}:${encodeKey(key)}`;
  }

  /** The key in the name of a lock of this namespace, or the hash that is stored instead; `undefined` for any other name. */
  keyOf(name: string): string | undefined {
    return this.#decode(name, LOCK);
  }

  /** The key of a record: in the bucket of the lock of that name, and without the `:` that follows the tag of a lock. Never a hash. */
  recordOf(name: string): string {
    return `${this.#namespace}:{${bucketOf(name)}}record:${encodeCharacters(name)}`;
  }

  /** The name of the record at this key; `undefined` for any other key. */
  recordIn(key: string): string | undefined {
    return this.#decode(key, RECORD);
  }

  /** The pattern by which `SCAN` finds the keys of the records. */
  get patternOfRecords(): string {
    return `${this.#namespace}:{*}record:*`;
  }

  /** The pattern of all keys and channels, for an ACL. */
  get pattern(): string {
    return `${this.#namespace}:*`;
  }

  /** The pattern by which `SCAN` finds the locks whose key begins with `prefix`, and their queues and readers. */
  patternOf(prefix: string): string {
    return `${this.#namespace}:{*}:${encodeCharacters(prefix).replace(/[*?[\]\\]/g, '\\$&')}*`;
  }

  /**
   * The key of a text that a process leaves for others: in the bucket of the lock of that name, and without the `:` that follows the tag of a
   * lock. So the label of a key is on the server of its lock.
   */
  textOf(kind: 'instance' | 'label' | 'waits', name: string): string {
    return `${this.counterOf(bucketOf(name))}${kind}:${encodeKey(name)}`;
  }

  /** The channel for messages about grants to a process: begins with the counter, as in the script. */
  channelOf(process: string, counter = this.counter): string {
    return counter + process;
  }

  #decode(name: string, pattern: RegExp): string | undefined {
    const prefix = `${this.#namespace}:`;
    const encoded = name.startsWith(prefix) ? pattern.exec(name.slice(prefix.length))?.[1] : undefined;
    return encoded === undefined ? undefined : decodeKey(encoded);
  }
}

/** FNV-1a over the UTF-16 code units: 20 ns for a usual key. */
function bucketOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < key.length; index += 1) hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
  return (hash >>> 0) % BUCKETS;
}
