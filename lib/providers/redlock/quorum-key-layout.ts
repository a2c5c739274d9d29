import { encodeKey } from '../redis/key-layout.js';

/**
 * The names of a namespace's records on every node. Fixed for ever: two versions of this package that differ here would not see
 * each other's locks. None begins as the records of the single provider do (`namespace:{`), so both may share a server.
 */
export class QuorumKeyLayout {
  /** The key under which tokens are counted. */
  readonly counter: string;
  /** The key under which a node is told which of its runs has lasted for `maxLease`. */
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
