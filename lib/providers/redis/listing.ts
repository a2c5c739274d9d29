import type { ListedLock } from '../../api/lock-info.js';
import { timeOfToken } from '../../core/toolkit/listing.js';
import type { LockLogger } from '../../api/logger.js';
import { type Batcher, LOOK, LOOKS } from './batcher.js';
import { look } from './inspection.js';
import type { InstanceNames } from './instance-names.js';
import { BUCKETS, type KeyLayout } from './key-layout.js';
import type { Servers } from './servers.js';

// Names that the server reads for one SCAN: 0.5 to 0.9 ms on a busy machine.
const PAGE = '500';

/** One look at all locks of a namespace whose key begins with a prefix. */
export class Listing {
  readonly #names = new Map<string, string>();

  constructor(
    private readonly servers: Servers,
    private readonly layout: KeyLayout,
    private readonly instanceNames: InstanceNames,
    private readonly logger: LockLogger,
  ) {}

  /** Page by page, and each page in small calls, so that the server turns to other clients meanwhile. */
  async *locks(prefix: string): AsyncGenerator<ListedLock> {
    const batchers = this.#reachable();
    const pattern = this.layout.patternOf(prefix);
    for (const ask of this.servers.asks) {
      let cursor = '0';
      do {
        const [next, names] = (await ask('scan', cursor, 'MATCH', pattern, 'COUNT', PAGE)) as [string, string[]];
        const locks = names.flatMap((lock) => {
          const key = this.layout.keyOf(lock);
          return key === undefined ? [] : [{ lock, key }];
        });
        for (let at = 0; at < locks.length; at += LOOKS) yield* await this.#lookAt(locks.slice(at, at + LOOKS));
        cursor = next;
      } while (cursor !== '0');
    }
    if (this.servers.isCluster) await this.#assertUnmoved(batchers);
  }

  /** Of each bucket. The locks of one without a server would be missing. */
  #reachable(): readonly Batcher[] {
    const batchers = Array.from({ length: BUCKETS }, (_, bucket) => this.#batcherOf(bucket));
    if (batchers.every(({ isReachable }) => isReachable)) return batchers;
    throw new Error('A server is not connected.');
  }

  /** A slot may move from a server that is still to be read to one that was read already. Whether it has, its server says when it is asked. */
  async #assertUnmoved(before: readonly Batcher[]): Promise<void> {
    // A key that no lock has, since the empty key is refused.
    const looks = before.map((batcher, bucket) => batcher.run(this.layout.counterOf(bucket) + ':', 'I', LOOK));
    await Promise.all(looks);
    if (before.some((batcher, bucket) => batcher !== this.#batcherOf(bucket)))
      throw new Error('Slots moved meanwhile.');
  }

  #batcherOf(bucket: number): Batcher {
    return this.servers.batcherOf(this.layout.counterOf(bucket));
  }

  async #lookAt(locks: readonly { readonly lock: string; readonly key: string }[]): Promise<ListedLock[]> {
    const looks = await Promise.all(
      locks.map(({ lock, key }) =>
        look(this.servers, lock, key).catch((error: unknown) => {
          if (!isForeign(error)) throw error;
          this.logger.warn(`"${lock}" in Redis is not a lock, so it is not listed (${error.message}); delete it.`);
          return null;
        }),
      ),
    );
    const found = looks.filter((each) => each !== null);
    await this.#readNames(new Set(found.flatMap(({ instances }) => instances)));
    return found.map(({ info, token, instances, serverTime }) => ({
      ...info,
      instances: [...new Set(instances.map((id) => this.#names.get(id) ?? id))],
      // Those that hold it together share the token of the first.
      since: info.mode === 'exclusive' ? timeOfToken(token, serverTime) : null,
    }));
  }

  async #readNames(ids: ReadonlySet<string>): Promise<void> {
    const unknown = [...ids].filter((id) => !this.#names.has(id));
    const names = await Promise.all(unknown.map((id) => this.instanceNames.nameOf(id)));
    unknown.forEach((id, index) => this.#names.set(id, names[index] ?? id));
  }
}

/** The script, or the reader of its answer, has failed on a record that no script has written. */
function isForeign(error: unknown): error is Error {
  if (error instanceof SyntaxError) return true;
  return error instanceof Error && error.name === 'ReplyError' && /WRONGTYPE|user_script/.test(error.message);
}
