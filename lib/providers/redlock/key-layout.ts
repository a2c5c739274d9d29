import { encodeKey } from '../redis/client/encode-key.js';

/**
 * The names of a namespace's records on every node. They never change: two versions of this package that differ here would not see
 * each other's locks. None begins as the records of `RedisLockProvider` do (`namespace:{`), so both may share a server.
 */
export class RedlockKeyLayout {
  /** The key under which tokens are counted. */
  readonly counter: string;
  /** The key under which a process notes on a node which of its runs has lasted for `maxLease`. */
  readonly run: string;

  constructor(namespace: string) {
    this.counter = `${namespace}:redlock`;
    // Not behind another colon: there it would be the vote for a lock of that name.
    this.run = `${this.counter}-run`;
  }

  /** The key of a node's vote for a lock. */
  lockOf(key: string): string {
    return `${this.counter}:${encodeKey(key)}`;
  }
}
