import type { LockInfo } from '../../api/lock-info.js';
import type { LockLogger } from '../../api/logger.js';
import { timeOfToken } from '../../core/toolkit/fencing-token.js';
import { INSPECT, INSPECTION, INSPECTIONS_PER_CALL } from './client/batcher.js';
import { ANY_LOCK_PATTERN, type KeyLayout, namespaceIn } from './key-layout.js';
import type { RedisTexts } from './redis-texts.js';
import type { RedisServers } from './redis-servers.js';

/** Lets operators list, inspect, and release all instances' locks. */
export class RedisOperatorView {
  constructor(
    private readonly servers: RedisServers,
    private readonly layout: KeyLayout,
    private readonly texts: RedisTexts,
    private readonly logger: LockLogger,
  ) {}

  inspect(key: string): Promise<LockInfo | null> {
    return this.#inspect(this.layout.lockOf(key), key, new Map());
  }

  async forceRelease(key: string): Promise<boolean> {
    const lock = this.layout.lockOf(key);
    return (await this.servers.shardOf(lock).batcher.run(lock, ['F', '', '0'])) === 1;
  }

  /** Reads one page at a time, in small calls, so the server can serve other clients in between. */
  async *list({ prefix }: { readonly prefix: string }): AsyncGenerator<LockInfo> {
    const instances: InstanceNames = new Map();
    for await (const names of this.servers.scan(this.layout.patternOf(prefix))) {
      const locks = names.flatMap((lock) => {
        const key = this.layout.keyOf(lock);
        return key === undefined ? [] : [{ lock, key }];
      });
      for (let at = 0; at < locks.length; at += INSPECTIONS_PER_CALL) {
        const page = locks.slice(at, at + INSPECTIONS_PER_CALL);
        const infos = await Promise.all(page.map(({ lock, key }) => this.#inspectUnlessForeign(lock, key, instances)));
        yield* infos.filter((info) => info !== null);
      }
    }
  }

  /** Scans all of the server's keys, as `list` does. */
  async namespaces(): Promise<readonly string[]> {
    const found = new Set<string>();
    for await (const names of this.servers.scan(ANY_LOCK_PATTERN)) {
      for (const name of names) found.add(namespaceIn(name) ?? '');
    }
    found.delete('');
    return [...found];
  }

  /**
   * Inspects a lock; `null` if it is free. Inspections in the same tick share one call.
   *
   * @param names the instance names that were requested so far
   */
  async #inspect(lock: string, key: string, names: InstanceNames): Promise<LockInfo | null> {
    let reply: unknown;
    // 'a' means that locks with many holders used up the call's budget before this one was inspected.
    do reply = await this.servers.shardOf(lock).batcher.run(lock, INSPECT, INSPECTION);
    while (reply === 'a');
    const info = readInspection(key, reply);
    if (info === null) return null;
    const nameOf = (id: string) => {
      const name = names.get(id) ?? this.texts.nameOf(id);
      names.set(id, name);
      return name;
    };
    return { ...info, instances: [...new Set(await Promise.all(info.instances.map(nameOf)))] };
  }

  async #inspectUnlessForeign(lock: string, key: string, names: InstanceNames): Promise<LockInfo | null> {
    try {
      return await this.#inspect(lock, key, names);
    } catch (error) {
      if (!isForeign(error)) throw error;
      this.logger.warn(`Redis key "${lock}" is not a lock (${error.message}), so it is not listed. Delete it.`);
      return null;
    }
  }
}

/** Names by instance id. */
type InstanceNames = Map<string, Promise<string>>;

const INSPECT_REPLY =
  /^(held|retained) (exclusive|shared|limited) (\d{1,9}) (\d{1,9}) (-?\d{1,15}) (\d{16}) (\d{16}) ([\w,]*)(?: (\d{1,15}) (\d{1,15}|inf))?$/;

/**
 * Reads the state, mode, holders, waiters, ms left, token, server time, and instances, plus a limited lock's used
 * weight and limit.
 *
 * @returns with the ids of the first 100 holders' instances instead of their names
 * @throws SyntaxError for any other reply
 */
function readInspection(key: string, reply: unknown): LockInfo | null {
  if (reply === '') return null;
  const fields = INSPECT_REPLY.exec(String(reply));
  if (fields === null) throw new SyntaxError('The reply from the lock script is invalid.');
  const [, state, mode, holders, waiters, expiresIn, digits = '', serverTime, instances, used, limit] = fields;
  const token = BigInt(digits);
  return {
    key,
    state: state === 'retained' ? 'retained' : 'held',
    mode: mode === 'shared' || mode === 'limited' ? mode : 'exclusive',
    holders: Number(holders),
    ...(mode === 'limited' && { limit: Number(limit), used: Number(used) }),
    waiters: Number(waiters),
    expiresIn: Number(expiresIn),
    fencingToken: mode === 'limited' ? null : token,
    instances: instances ? instances.split(',') : [],
    // All holders of a shared or limited lock have the first holder's token.
    since: mode === 'exclusive' ? timeOfToken(token, Number(serverTime) / 1_000) : null,
  };
}

/** Whether the error means that a key's value wasn't written by our script. */
function isForeign(error: unknown): error is Error {
  if (error instanceof SyntaxError) return true;
  return error instanceof Error && error.name === 'ReplyError' && /WRONGTYPE|user_script/.test(error.message);
}
