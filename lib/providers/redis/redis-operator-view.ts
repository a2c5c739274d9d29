import type { LockInfo } from '../../api/lock-info.js';
import type { LockLogger } from '../../api/logger.js';
import { timeOfToken } from '../../core/toolkit/fencing-token.js';
import { HEAVY, INSPECTION, INSPECTIONS_PER_CALL } from './client/batcher.js';
import { ANY_LOCK_PATTERN, type KeyLayout, namespaceIn } from './key-layout.js';
import type { RedisTexts } from './redis-texts.js';
import type { RedisServers } from './redis-servers.js';

/** A held or retained lock, as reported by the server. */
interface SeenLock {
  readonly info: Omit<LockInfo, 'instances' | 'since'>;
  /** The latest holder's token. */
  readonly token: bigint;
  /** The server's time during the inspection, in ms since 1970. */
  readonly serverTime: number;
  /** The instance ids of the first 100 holders. */
  readonly instances: readonly string[];
}

/** Lets operators list, inspect, and release all instances' locks. */
export class RedisOperatorView {
  constructor(
    private readonly servers: RedisServers,
    private readonly layout: KeyLayout,
    private readonly texts: RedisTexts,
    private readonly logger: LockLogger,
  ) {}

  async inspect(key: string): Promise<LockInfo | null> {
    const seen = await this.#read(this.layout.lockOf(key), key);
    if (!seen) return null;
    const [info = null] = await this.#withInstanceNames([seen], new Map());
    return info;
  }

  async forceRelease(key: string): Promise<boolean> {
    const lock = this.layout.lockOf(key);
    return (await this.servers.shardOf(lock).batcher.run(lock, 'F', HEAVY)) === 1;
  }

  /** Reads one page at a time, in small calls, so the server can serve other clients in between. */
  async *list({ prefix }: { readonly prefix: string }): AsyncGenerator<LockInfo> {
    const instances = new Map<string, string>();
    for await (const names of this.servers.scan(this.layout.patternOf(prefix))) {
      const locks = names.flatMap((lock) => {
        const key = this.layout.keyOf(lock);
        return key === undefined ? [] : [{ lock, key }];
      });
      for (let at = 0; at < locks.length; at += INSPECTIONS_PER_CALL) {
        yield* await this.#inspectAll(locks.slice(at, at + INSPECTIONS_PER_CALL), instances);
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

  /** Inspects a lock; `null` if it is free. Inspections in the same tick share one call. */
  async #read(lock: string, key: string): Promise<SeenLock | null> {
    for (;;) {
      const reply = await this.servers.shardOf(lock).batcher.run(lock, 'I', INSPECTION);
      // 'a' means that locks with many holders used up the call's budget before this one was inspected.
      if (reply !== 'a') return readInspection(key, reply);
    }
  }

  /** @param names the instance names that were read so far */
  async #inspectAll(
    locks: readonly { readonly lock: string; readonly key: string }[],
    names: Map<string, string>,
  ): Promise<LockInfo[]> {
    const looks = await Promise.all(
      locks.map(({ lock, key }) =>
        this.#read(lock, key).catch((error: unknown) => {
          if (!isForeign(error)) throw error;
          this.logger.warn(`Redis key "${lock}" is not a lock (${error.message}), so it is not listed. Delete it.`);
          return null;
        }),
      ),
    );
    return this.#withInstanceNames(
      looks.filter((each) => each !== null),
      names,
    );
  }

  /** @param names the instance names that were read so far */
  async #withInstanceNames(found: readonly SeenLock[], names: Map<string, string>): Promise<LockInfo[]> {
    const unknown = new Set(found.flatMap(({ instances }) => instances).filter((id) => !names.has(id)));
    await Promise.all(Array.from(unknown, async (id) => names.set(id, await this.texts.nameOf(id))));
    return found.map(({ info, token, instances, serverTime }) => ({
      ...info,
      instances: [...new Set(instances.map((id) => names.get(id) ?? id))],
      // All holders of a shared or limited lock have the first holder's token.
      since: info.mode === 'exclusive' ? timeOfToken(token, serverTime) : null,
    }));
  }
}

const INSPECT_REPLY =
  /^(held|retained) (exclusive|shared|limited) (\d{1,9}) (\d{1,9}) (-?\d{1,15}) (\d{16}) (\d{16}) ([\w,]*)(?: (\d{1,15}) (\d{1,15}|inf))?$/;

/**
 * Reads the state, mode, holders, waiters, ms left, token, server time, and instances, plus a limited lock's used weight and limit.
 *
 * @throws SyntaxError for any other reply
 */
function readInspection(key: string, reply: unknown): SeenLock | null {
  if (reply === '') return null;
  const fields = INSPECT_REPLY.exec(String(reply));
  if (fields === null) throw new SyntaxError('The reply from the lock script is invalid.');
  const [, state, mode, holders, waiters, expiresIn, token, serverTime, instances, used, limit] = fields;
  const info: SeenLock['info'] = {
    key,
    state: state === 'retained' ? 'retained' : 'held',
    mode: mode === 'shared' || mode === 'limited' ? mode : 'exclusive',
    holders: Number(holders),
    ...(mode === 'limited' && { limit: Number(limit), used: Number(used) }),
    waiters: Number(waiters),
    expiresIn: Number(expiresIn),
    fencingToken: mode === 'limited' ? null : BigInt(token ?? 0),
  };
  return {
    info,
    token: BigInt(token ?? 0),
    serverTime: Number(serverTime) / 1_000,
    instances: instances ? instances.split(',') : [],
  };
}

/** Whether the error means that a key's value wasn't written by our script. */
function isForeign(error: unknown): error is Error {
  if (error instanceof SyntaxError) return true;
  return error instanceof Error && error.name === 'ReplyError' && /WRONGTYPE|user_script/.test(error.message);
}
