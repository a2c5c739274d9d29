import type { LockInfo } from '../../api/lock-info.js';
import type { LockLogger } from '../../api/logger.js';
import { timeOfToken } from '../../core/toolkit/fencing-token.js';
import { HEAVY, LOOK, LOOKS } from './client/batcher.js';
import { ANY_LOCK_PATTERN, type KeyLayout, namespaceIn } from './key-layout.js';
import type { RedisTexts } from './redis-texts.js';
import type { RedisServers } from './redis-servers.js';

/** The state at the server of a lock that is held or retained. */
interface SeenLock {
  readonly info: Omit<LockInfo, 'instances' | 'since'>;
  /** That of the latest holder. */
  readonly token: bigint;
  /** When it answered, by its clock, in ms since 1970. */
  readonly serverTime: number;
  /** The ids of the instances of the first 100 holders. */
  readonly instances: readonly string[];
}

/** The locks of all instances, for operators, who can free them. */
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
    const [info = null] = await this.#named([seen], new Map());
    return info;
  }

  async forceRelease(key: string): Promise<boolean> {
    const lock = this.layout.lockOf(key);
    return (await this.servers.shardOf(lock).batcher.run(lock, 'F', HEAVY)) === 1;
  }

  /** Page by page, and each page in small calls, so that the server turns to other clients meanwhile. */
  async *list({ prefix }: { readonly prefix: string }): AsyncGenerator<LockInfo> {
    const instances = new Map<string, string>();
    for await (const names of this.servers.scan(this.layout.patternOf(prefix))) {
      const locks = names.flatMap((lock) => {
        const key = this.layout.keyOf(lock);
        return key === undefined ? [] : [{ lock, key }];
      });
      for (let at = 0; at < locks.length; at += LOOKS) {
        yield* await this.#lookAt(locks.slice(at, at + LOOKS), instances);
      }
    }
  }

  /** The server reads all its names for this, as it does for a list. */
  async namespaces(): Promise<readonly string[]> {
    const found = new Set<string>();
    for await (const names of this.servers.scan(ANY_LOCK_PATTERN)) {
      for (const name of names) found.add(namespaceIn(name) ?? '');
    }
    found.delete('');
    return [...found];
  }

  /** Asks about a lock; `null` when it is free. Many that are asked about in one tick travel together. */
  async #read(lock: string, key: string): Promise<SeenLock | null> {
    for (;;) {
      const reply = await this.servers.shardOf(lock).batcher.run(lock, 'I', LOOK);
      // Locks with many holders fill a call before its last look.
      if (reply !== 'a') return readLook(key, reply);
    }
  }

  /** @param names those of instances, as far as they are read */
  async #lookAt(
    locks: readonly { readonly lock: string; readonly key: string }[],
    names: Map<string, string>,
  ): Promise<LockInfo[]> {
    const looks = await Promise.all(
      locks.map(({ lock, key }) =>
        this.#read(lock, key).catch((error: unknown) => {
          if (!isForeign(error)) throw error;
          this.logger.warn(`"${lock}" in Redis is not a lock, so it is not listed (${error.message}); delete it.`);
          return null;
        }),
      ),
    );
    return this.#named(
      looks.filter((each) => each !== null),
      names,
    );
  }

  /** @param names those of instances, as far as they are read */
  async #named(found: readonly SeenLock[], names: Map<string, string>): Promise<LockInfo[]> {
    const unknown = new Set(found.flatMap(({ instances }) => instances).filter((id) => !names.has(id)));
    await Promise.all(Array.from(unknown, async (id) => names.set(id, await this.texts.nameOf(id))));
    return found.map(({ info, token, instances, serverTime }) => ({
      ...info,
      instances: [...new Set(instances.map((id) => names.get(id) ?? id))],
      // Those that hold it together share the token of the first.
      since: info.mode === 'exclusive' ? timeOfToken(token, serverTime) : null,
    }));
  }
}

const LOOK_REPLY =
  /^(held|retained) (exclusive|shared|limited) (\d{1,9}) (\d{1,9}) (-?\d{1,15}) (\d{16}) (\d{16}) ([\w,]*)(?: (\d{1,15}) (\d{1,15}|inf))?$/;

/**
 * Reads state, mode, holders, waiters, ms left, token, server time, instances, and of a limited lock what is used, and the limit.
 *
 * @throws SyntaxError for any other reply
 */
function readLook(key: string, reply: unknown): SeenLock | null {
  if (reply === '') return null;
  const fields = LOOK_REPLY.exec(String(reply));
  if (fields === null) throw new SyntaxError('This is no answer of the lock script.');
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

/** The script, or the reader of its answer, has failed on a record that no script has written. */
function isForeign(error: unknown): error is Error {
  if (error instanceof SyntaxError) return true;
  return error instanceof Error && error.name === 'ReplyError' && /WRONGTYPE|user_script/.test(error.message);
}
