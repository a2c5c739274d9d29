import type { LockInfo } from '../../api/lock-info.js';
import type { RequestContext } from './request-context.js';
import { isHashed, keyIn, type LockPaths } from './lock-path.js';
import { instanceIdOf, instanceNameIn } from './node-content.js';
import { isFailure } from './zookeeper-client.js';

/** How many keys a list prefetches. */
const AHEAD = 32;
/** How many holders of a key are listed with their instance names. */
const NAMED_HOLDERS = 100;

interface HeldKey {
  readonly info: Omit<LockInfo, 'instances' | 'since'>;
  /** The holders' node names. */
  readonly holders: readonly string[];
}

/** Lists, inspects, and force-releases locks for operators. */
export class OperatorView {
  constructor(
    private readonly context: RequestContext,
    private readonly paths: LockPaths,
  ) {}

  inspect(key: string): Promise<LockInfo | null> {
    return this.#readLock(key, this.paths.folderOf(key), new Map());
  }

  async forceRelease(key: string): Promise<boolean> {
    const { recipe, session } = this.context;
    const folder = this.paths.folderOf(key);
    const removals = recipe.holdersOf(await this.#namesIn(folder, key)).map(async (name) => {
      try {
        await session.client.remove(`${folder}/${name}`);
        return true;
      } catch (error) {
        if (isFailure(error, 'no-node')) return false;
        throw this.context.unavailable(key, error);
      }
    });
    return (await Promise.all(removals)).includes(true);
  }

  /**
   * Reads all keys of the namespace at once, because the server has no pagination. Their folders are read as the list
   * is consumed.
   */
  async *list({ prefix }: { readonly prefix: string }): AsyncGenerator<LockInfo> {
    // Write first, or a server that lags behind its leader would miss the latest locks.
    await this.context.session.heartbeat().catch((error: unknown) => {
      throw this.context.unavailable(undefined, error);
    });
    const instances = new Map<string, string>();
    const reads: Promise<LockInfo | null>[] = [];
    for (const segment of await this.#namesIn(this.paths.namespace, undefined)) {
      const key = this.paths.keyOf(segment);
      const isHash = isHashed(segment);
      if (key === undefined || !(isHash || key.startsWith(prefix))) continue;
      const folder = `${this.paths.namespace}/${segment}`;
      const read = isHash
        ? this.#readHashed(segment, folder, prefix, instances)
        : this.#readLock(key, folder, instances);
      // The error is rethrown when the list reaches this key, if the consumer gets that far.
      read.catch(() => undefined);
      reads.push(read);
      if (reads.length < AHEAD) continue;
      const lock = await reads.shift();
      if (lock) yield lock;
    }
    for (const read of reads) {
      const lock = await read;
      if (lock) yield lock;
    }
  }

  async #read(key: string, folder: string): Promise<HeldKey | null> {
    const { recipe, session } = this.context;
    for (;;) {
      const names = await this.#namesIn(folder, key);
      const holders = recipe.holdersOf(names);
      const [first] = holders;
      if (first === undefined) return null;
      const mode = recipe.modeOf(first);
      // Each limited holder has its own token; the last holder's is the highest.
      const latest = (mode === 'limited' && holders.at(-1)) || first;
      const stat = await session.client.stat(`${folder}/${latest}`).catch((error: unknown) => {
        throw this.context.unavailable(key, error);
      });
      // The node was removed between the two reads.
      if (!stat) continue;
      const info: HeldKey['info'] = {
        key,
        state: 'held',
        mode,
        holders: holders.length,
        ...recipe.usageOf(holders),
        waiters: names.length - holders.length,
        expiresIn: null,
        fencingToken: mode === 'limited' ? null : stat.createdAt,
      };
      return { info, holders };
    }
  }

  /**
   * Like {@link #readLock}, but for a folder with a hashed name. Resolves to null if the key doesn't have the prefix.
   */
  async #readHashed(
    segment: string,
    folder: string,
    prefix: string,
    instances: Map<string, string>,
  ): Promise<LockInfo | null> {
    const value = await this.context.session.client.read(folder).catch((error: unknown) => {
      throw this.context.unavailable(segment, error);
    });
    if (!value) return null;
    const key = keyIn(value.data, segment) ?? segment;
    return key.startsWith(prefix) ? this.#readLock(key, folder, instances) : null;
  }

  /** @param instances cached names by id, so an instance with many keys is read only once */
  async #readLock(key: string, folder: string, instances: Map<string, string>): Promise<LockInfo | null> {
    const held = await this.#read(key, folder);
    if (!held) return null;
    const nodes = new Map(held.holders.slice(0, NAMED_HOLDERS).map((name) => [instanceIdOf(name), name]));
    const names = Array.from(nodes, async ([id, node]) => {
      const known = instances.get(id);
      if (known !== undefined) return known;
      const value = await this.context.session.client.read(`${folder}/${node}`).catch((error: unknown) => {
        throw this.context.unavailable(key, error);
      });
      const name = value ? instanceNameIn(value.data, id) : undefined;
      if (name === undefined) return id;
      instances.set(id, name);
      return name;
    });
    // The time of the grant isn't recorded. The node contains only the request time.
    return { ...held.info, instances: [...new Set(await Promise.all(names))], since: null };
  }

  /** @param key the key to mention in errors */
  async #namesIn(folder: string, key: string | undefined): Promise<readonly string[]> {
    try {
      return await this.context.session.client.children(folder);
    } catch (error) {
      if (isFailure(error, 'no-node')) return [];
      throw this.context.unavailable(key, error);
    }
  }
}
