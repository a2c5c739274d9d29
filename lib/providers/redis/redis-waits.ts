import type { SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import { holdersOf, type KeyLayout } from './key-layout.js';
import { plainCommand } from './plain-command.js';
import type { Servers } from './servers.js';
import { readHolders } from './wire.js';

/**
 * The records of what processes wait for: a string for each process, with an expiry. Plain commands read and write them, so that the script of the
 * locks is as fast as without them.
 */
export class RedisWaits implements WaitBoard {
  constructor(
    private readonly servers: Servers,
    private readonly layout: KeyLayout,
    private readonly provider: string,
    /** The id of this process. */
    private readonly instance: string,
  ) {}

  /** Of one server for all processes, also in a Cluster. */
  async serverTime(): Promise<number> {
    const [, seconds, micros] =
      /^(\d{1,12}),(\d{1,6})$/.exec(String(await this.#send(this.layout.counter, 'time'))) ?? [];
    if (seconds === undefined) throw new Error('The server answers TIME with something else.');
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  }

  async publish(text: string | null, keepFor: number): Promise<void> {
    const name = this.#nameOf(this.instance);
    if (text === null) await this.#send(name, 'del', name);
    else await this.#send(name, 'set', name, text, 'PX', String(keepFor));
  }

  async read(instance: string): Promise<string | null> {
    const name = this.#nameOf(instance);
    const text = await this.#send(name, 'get', name);
    return typeof text === 'string' ? text : null;
  }

  async holders(key: string, most: number): Promise<readonly SeenGrant[]> {
    const lock = this.layout.lockOf(key);
    const [value, records] = await Promise.all([
      this.#send(lock, 'get', lock),
      this.#send(lock, 'zrange', holdersOf(lock), '0', String(most - 1)),
    ]);
    return readHolders(value, records);
  }

  /** Two providers of one application may share a server and a namespace. */
  #nameOf(instance: string): string {
    return this.layout.waitsOf(instance, this.provider);
  }

  #send(lock: string, command: string, ...args: string[]): Promise<unknown> {
    return plainCommand(this.servers, lock, 'this lock', command, ...args);
  }
}
