import type { AcquireRequest, Instance, SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import { isInstanceName } from '../../api/printable.js';
import { holdersOf, type KeyLayout } from './key-layout.js';
import type { RedisServers } from './redis-servers.js';
import { holderIn, readHolders } from './wire.js';

const INSTANCE_NAMES_KEPT = 86_400_000;

/**
 * Texts that processes share through the server, each stored as a string with an expiry: instance names, holders' trace
 * labels, and what a process's callers are waiting for. They are read and written with plain commands, so they add no
 * load to the lock script.
 */
export class RedisTexts implements WaitBoard {
  constructor(
    private readonly servers: RedisServers,
    private readonly layout: KeyLayout,
    private readonly provider: string,
    private readonly instance: Instance,
  ) {}

  /** Publishes this instance's name. The instance id is the prefix of its holders' ids. */
  register(): Promise<void> {
    return this.#write(this.layout.textOf('instance', this.instance.id), this.instance.name, INSTANCE_NAMES_KEPT);
  }

  /** An instance's name, or its id if the name is unknown or can't be read. */
  async nameOf(id: string): Promise<string> {
    const name = await this.#read(this.layout.textOf('instance', id)).catch(() => null);
    return isInstanceName(name) ? name : id;
  }

  /**
   * Stores the label, prefixed with the holder's request id. The lock contains the same id, so a reader can ignore an
   * earlier holder's label, and releases don't have to delete it. A failure is not reported, because the lock doesn't
   * depend on the label.
   */
  label({ key, id }: AcquireRequest, text: string, duration: number): void {
    this.#write(this.layout.textOf('label', key), id + text, duration).catch(() => undefined);
  }

  /**
   * Reads both keys in one round trip. If the lock changes hands between the reads, the ids differ, or the label's
   * holder has just left.
   */
  async labelOf(key: string): Promise<string | null> {
    const [value, label] = await Promise.all([
      this.#read(this.layout.lockOf(key)),
      this.#read(this.layout.textOf('label', key)),
    ]);
    const holder = holderIn(value);
    return holder !== undefined && label?.startsWith(holder) === true ? label.slice(holder.length) : null;
  }

  async publish(text: string | null, keepFor: number): Promise<void> {
    const name = this.#waitsOf(this.instance.id);
    if (text === null) await this.servers.shardOf(name).call('del', name);
    else await this.#write(name, text, keepFor);
  }

  read(instance: string): Promise<string | null> {
    return this.#read(this.#waitsOf(instance));
  }

  async holders(key: string, most: number): Promise<readonly SeenGrant[]> {
    const lock = this.layout.lockOf(key);
    const [value, records] = await Promise.all([
      this.#read(lock),
      this.servers.shardOf(lock).call('zrange', holdersOf(lock), '0', String(most - 1)),
    ]);
    return readHolders(value, records);
  }

  /** Always reads the time from the same server, so all processes agree even in a Cluster. */
  async serverTime(): Promise<number> {
    const time = String(await this.servers.shardOf(this.layout.counter).call('time'));
    const [, seconds, micros] = /^(\d{1,12}),(\d{1,6})$/.exec(time) ?? [];
    if (seconds === undefined) throw new Error('The server sent an unexpected reply to TIME.');
    return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
  }

  /** Includes the provider's name because two providers in one application may share a server and a namespace. */
  #waitsOf(instance: string): string {
    return this.layout.textOf('waits', `${instance}:${this.provider}`);
  }

  async #write(name: string, text: string, keepFor: number): Promise<void> {
    await this.servers.shardOf(name).call('set', name, text, 'PX', String(Math.ceil(keepFor)));
  }

  async #read(name: string): Promise<string | null> {
    const text = await this.servers.shardOf(name).call('get', name);
    return typeof text === 'string' ? text : null;
  }
}
