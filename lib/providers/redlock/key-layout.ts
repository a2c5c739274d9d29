import { encodeKey } from '../redis/client/encode-key.js';

/**
 * A namespace's Redis keys on every node. They must never change: two versions of this package with different keys
 * would not see each other's locks. No key has a `RedisLockProvider` prefix (`namespace:{`), so both providers may
 * share a server.
 */
export class RedlockKeyLayout {
  /** The token counter's key. */
  readonly counter: string;
  /** The key on a node under which a process records that the node's current run has lasted for `maxLease`. */
  readonly run: string;

  constructor(namespace: string) {
    this.counter = `${namespace}:redlock`;
    // With a colon before "run", this would be the key of a vote for a lock named "run".
    this.run = `${this.counter}-run`;
  }

  /** The key of a node's vote for a lock. */
  lockOf(key: string): string {
    return `${this.counter}:${encodeKey(key)}`;
  }
}
