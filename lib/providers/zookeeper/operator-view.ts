import type { LockInfo } from '../../api/lock-info.js';
import type { RequestContext } from './request-context.js';
import { isHashed, keyIn, type LockPaths } from './lock-path.js';
import { instanceIdOf, instanceNameIn } from './node-content.js';

/** How many holders of a key are listed with their instance names. */
const NAMED_HOLDERS = 100;

/** Lists, inspects, and force-releases locks for operators. */
export class OperatorView {
  constructor(
    private readonly context: RequestContext,
    private readonly paths: LockPaths,
  ) {}

  inspect(key: string): Promise<LockInfo | null> {
    return this.#readLock(key, this.paths.folderOf(key), new Map());
  }

  forceRelease(key: string): Promise<boolean> {
    const { recipe, session } = this.context;
    const folder = this.paths.folderOf(key);
    const removeAll = async () => {
      // Write first, or a server that lags behind its leader would list earlier holders.
      await session.heartbeat();
      const holders = recipe.holdersOf(await session.client.children(folder));
      return Promise.all(holders.map((name) => session.client.remove(`${folder}/${name}`)));
    };
    return this.#attempt(key, async () => (await removeAll()).includes(true));
  }

  list({ prefix }: { readonly prefix: string }): AsyncGenerator<LockInfo> {
    const instances = new Map<string, string>();
    return this.context.list('The list of locks', this.paths.namespace, (segment) => {
      const key = this.paths.keyOf(segment);
      const folder = `${this.paths.namespace}/${segment}`;
      if (isHashed(segment)) return this.#readHashed(segment, folder, prefix, instances);
      return key?.startsWith(prefix) ? this.#readLock(key, folder, instances) : undefined;
    });
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
    const value = await this.#attempt(segment, () => this.context.session.client.read(folder));
    if (!value) return null;
    const key = keyIn(value.data, segment) ?? segment;
    return key.startsWith(prefix) ? this.#readLock(key, folder, instances) : null;
  }

  /** @param instances cached names by id, so an instance with many keys is read only once */
  #readLock(key: string, folder: string, instances: Map<string, string>): Promise<LockInfo | null> {
    return this.#attempt(key, () => this.#read(key, folder, instances));
  }

  async #read(key: string, folder: string, instances: Map<string, string>): Promise<LockInfo | null> {
    const { recipe, session } = this.context;
    for (;;) {
      const names = await session.client.children(folder);
      const holders = recipe.holdersOf(names);
      const [first] = holders;
      if (first === undefined) return null;
      const mode = recipe.modeOf(first);
      // Each limited holder has its own token; the last holder's is the highest.
      const latest = (mode === 'limited' && holders.at(-1)) || first;
      const stat = await session.client.stat(`${folder}/${latest}`);
      // The node was removed between the two reads.
      if (!stat) continue;
      return {
        key,
        state: 'held',
        mode,
        holders: holders.length,
        ...recipe.usageOf(holders),
        waiters: names.length - holders.length,
        expiresIn: null,
        fencingToken: mode === 'limited' ? null : stat.createdAt,
        instances: await this.#instancesOf(holders, folder, instances),
        // The time of the grant isn't recorded. The node contains only the request time.
        since: null,
      };
    }
  }

  async #instancesOf(
    holders: readonly string[],
    folder: string,
    instances: Map<string, string>,
  ): Promise<readonly string[]> {
    const nodes = new Map(holders.slice(0, NAMED_HOLDERS).map((name) => [instanceIdOf(name), name]));
    const names = Array.from(nodes, async ([id, node]) => {
      const known = instances.get(id);
      if (known !== undefined) return known;
      const value = await this.context.session.client.read(`${folder}/${node}`);
      const name = value ? instanceNameIn(value.data, id) : undefined;
      if (name === undefined) return id;
      instances.set(id, name);
      return name;
    });
    return [...new Set(await Promise.all(names))];
  }

  #attempt<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.context.attempt(`Lock "${key}"`, work, key);
  }
}
