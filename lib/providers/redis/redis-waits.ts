import type { GrantText, SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import { holdersOf, type KeyLayout } from './key-layout.js';
import { plainCommand } from './plain-command.js';
import type { Servers } from './servers.js';
import { readHolders } from './wire.js';

/**
 * The texts beside grants: a string for each, with an expiry, in the bucket of its lock. They are read and written by plain commands, so that the script of
 * the locks is as fast as without them.
 */
export class RedisWaits implements WaitBoard {
  constructor(
    private readonly servers: Servers,
    private readonly layout: KeyLayout,
  ) {}

  /** Of one server for all processes, also in a Cluster. */
  async serverTime(): Promise<number> {
    const [, seconds, micros] =
      /^(\d{1,12}),(\d{1,6})$/.exec(String(await this.#send(this.layout.counter, 'time'))) ?? [];
    if (seconds === undefined) throw new Error('The server answers TIME with something else.');
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  }

  /** Of a Cluster, some servers may not answer, or refuse. */
  async write(texts: readonly GrantText[], keepFor: number): Promise<readonly string[]> {
    const failed = await Promise.all(texts.map((text) => this.#write(text, keepFor)));
    return failed.flat();
  }

  async #write({ key, id, text }: GrantText, keepFor: number): Promise<readonly string[]> {
    const lock = this.layout.lockOf(key);
    const beside = this.layout.textBeside(lock, id);
    try {
      if (text === null) await this.#send(lock, 'del', beside);
      else await this.#send(lock, 'set', beside, text, 'PX', String(keepFor));
      return [];
    } catch {
      return [id];
    }
  }

  async look(key: string, most: number): Promise<readonly SeenGrant[]> {
    const lock = this.layout.lockOf(key);
    const [value, records] = await Promise.all([
      this.#send(lock, 'get', lock),
      this.#send(lock, 'zrange', holdersOf(lock), '0', String(most - 1)),
    ]);
    const seen = readHolders(value, records).map(async ({ id, mode }): Promise<SeenGrant> => {
      const text = await this.#send(lock, 'get', this.layout.textBeside(lock, id));
      return { id, mode, text: typeof text === 'string' ? text : null };
    });
    return await Promise.all(seen);
  }

  #send(lock: string, command: string, ...args: string[]): Promise<unknown> {
    return plainCommand(this.servers, lock, 'this lock', command, ...args);
  }
}
