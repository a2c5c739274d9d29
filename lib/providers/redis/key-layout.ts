import { decodeKey, encodeCharacters, encodeKey } from './client/encode-key.js';

/**
 * The number of buckets over which a namespace's locks are spread. All of a lock's records are in one hash slot, so a
 * Redis Cluster can run the script. Never change this number: package versions with different numbers wouldn't see each
 * other's locks.
 */
export const BUCKETS = 16;

// These match the part after the namespace. An encoded key never contains `}`, so names with a queue or reader suffix
// don't match.
const LOCK = /^\{(?:\d|1[0-5])\}:([^}]*)$/s;
const RECORD = /^\{(?:\d|1[0-5])\}record:([^}]*)$/s;

const ANY_LOCK = /^([A-Za-z0-9_.-]{1,64}):\{(?:\d|1[0-5])\}:[^}]*$/s;

/** The `SCAN` pattern for all namespaces' locks. */
export const ANY_LOCK_PATTERN = '*:{*}:*';

/** The namespace in a lock's Redis key; `undefined` for any other key. */
export function namespaceIn(name: string): string | undefined {
  return ANY_LOCK.exec(name)?.[1];
}

/** The Redis key of a lock's queue. */
export function queueOf(lock: string): string {
  return `${lock}}q`;
}

/** The Redis key of a lock's readers or limited holders. */
export function holdersOf(lock: string): string {
  return `${lock}}r`;
}

/** The Redis key for processes waiting for locks with this counter. */
export function processesOf(counter: string): string {
  return `${counter}seen`;
}

/** A namespace's Redis keys and channels. */
export class KeyLayout {
  /**
   * The key of the token counter, which is also the prefix of the key for waiting processes. On a single server, all
   * buckets share one counter, so a call can carry operations on any lock. In a Cluster, each bucket has its own: see
   * {@link counterOf}.
   */
  readonly counter: string;
  readonly #namespace: string;

  constructor(namespace: string) {
    this.#namespace = namespace;
    this.counter = this.counterOf(0);
  }

  /** A bucket's counter in a Cluster, in the hash slot of the bucket's locks. */
  counterOf(bucket: number): string {
    return `${this.#namespace}:{${bucket}}`;
  }

  /** The counters of all buckets in a Cluster. */
  get counters(): readonly string[] {
    return Array.from({ length: BUCKETS }, (_, bucket) => this.counterOf(bucket));
  }

  /** A lock's bucket, by its Redis key. */
  bucketIn(lock: string): number {
    return Number.parseInt(lock.slice(this.#namespace.length + 2), 10);
  }

  /** A lock's Redis key, which is also the prefix of its queue and holder keys. */
  lockOf(key: string): string {
    return `${this.#namespace}:{${bucketOf(key)}}:${encodeKey(key)}`;
  }

  /**
   * Reverses {@link lockOf}: the key, or its hash if the key is long; `undefined` for a Redis key that is not a lock of
   * this namespace.
   */
  keyOf(name: string): string | undefined {
    return this.#decode(name, LOCK);
  }

  /** A job record's Redis key. Unlike a lock's key, it has no `:` after the hash tag, and the name is never hashed. */
  recordOf(name: string): string {
    return `${this.#namespace}:{${bucketOf(name)}}record:${encodeCharacters(name)}`;
  }

  /** Reverses {@link recordOf}; `undefined` for any other Redis key. */
  recordIn(key: string): string | undefined {
    return this.#decode(key, RECORD);
  }

  /** The `SCAN` pattern for job records. */
  get patternOfRecords(): string {
    return `${this.#namespace}:{*}record:*`;
  }

  /** The ACL pattern for all keys and channels. */
  get pattern(): string {
    return `${this.#namespace}:*`;
  }

  /** The `SCAN` pattern for locks whose key begins with `prefix`. It also matches their queues and readers. */
  patternOf(prefix: string): string {
    return `${this.#namespace}:{*}:${encodeCharacters(prefix).replace(/[*?[\]\\]/g, '\\$&')}*`;
  }

  /**
   * The Redis key for a text that a process publishes for others. Unlike a lock's key, it has no `:` after the hash
   * tag. A key's label shares its lock's bucket, so both are on the same server.
   */
  textOf(kind: 'instance' | 'label' | 'waits', name: string): string {
    return `${this.counterOf(bucketOf(name))}${kind}:${encodeKey(name)}`;
  }

  /** The channel for a process's grants. The script builds the same name. */
  channelOf(process: string, counter = this.counter): string {
    return counter + process;
  }

  #decode(name: string, pattern: RegExp): string | undefined {
    const prefix = `${this.#namespace}:`;
    const encoded = name.startsWith(prefix) ? pattern.exec(name.slice(prefix.length))?.[1] : undefined;
    return encoded === undefined ? undefined : decodeKey(encoded);
  }
}

/** FNV-1a over the UTF-16 code units: 20 ns for a typical key. */
function bucketOf(key: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < key.length; index += 1) hash = Math.imul(hash ^ key.charCodeAt(index), 0x01000193);
  return (hash >>> 0) % BUCKETS;
}
