import type { OnApplicationShutdown } from '@nestjs/common';
import { type Client, Exception } from 'node-zookeeper-client';
import { Stock } from '../stock/stock.js';

const ANY_VERSION = -1;

interface Entry {
  readonly left: number;
  /** The largest fencing token of any write so far. */
  readonly fence: string;
  readonly version: number;
}

const NO_ENTRY: Entry = { left: 0, fence: '0', version: ANY_VERSION };

/** Keeps the stock in ZooKeeper, read and written in two steps. */
export class ZooKeeperStock extends Stock implements OnApplicationShutdown {
  constructor(private readonly client: Client) {
    super();
  }

  async read(item: string): Promise<number> {
    return (await this.#entry(item)).left;
  }

  async write(item: string, left: number, token: bigint | null): Promise<boolean> {
    const { fence, version } = await this.#entry(item);
    if (token !== null && token < BigInt(fence)) return false;
    try {
      const isFenced = token !== null;
      await this.#set(item, { left, fence: isFenced ? String(token) : fence }, isFenced ? version : ANY_VERSION);
      return true;
    } catch (error) {
      // Another process has written since the fence was read, so the fence may have changed.
      if (isException(error, Exception.BAD_VERSION)) return this.write(item, left, token);
      throw error;
    }
  }

  onApplicationShutdown(): void {
    this.client.close();
  }

  #entry(item: string): Promise<Entry> {
    return new Promise((resolve, reject) => {
      this.client.getData(path(item), (error, data, stat) => {
        if (isException(error, Exception.NO_NODE)) resolve(NO_ENTRY);
        else if (error) reject(error);
        // A node without data was just created.
        else
          resolve({ ...NO_ENTRY, ...(data.length > 0 && (JSON.parse(String(data)) as Entry)), version: stat.version });
      });
    });
  }

  #set(item: string, data: Omit<Entry, 'version'>, version: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.client.mkdirp(path(item), (missing) => {
        if (missing) {
          reject(missing);
          return;
        }
        this.client.setData(path(item), Buffer.from(JSON.stringify(data)), version, (error) => {
          if (error) reject(error);
          else resolve();
        });
      });
    });
  }
}

function isException(error: unknown, code: number): boolean {
  return error instanceof Exception && error.code === code;
}

function path(item: string): string {
  return `/shop/stock/${encodeURIComponent(item)}`;
}
