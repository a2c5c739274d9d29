import type { OnApplicationShutdown } from '@nestjs/common';
import { type Client, Exception } from 'node-zookeeper-client';
import { Stock } from '../stock/stock.js';

/** Keeps the stock in ZooKeeper, read and written in two steps. */
export class ZooKeeperStock extends Stock implements OnApplicationShutdown {
  constructor(private readonly client: Client) {
    super();
  }

  read(item: string): Promise<number> {
    return new Promise((resolve, reject) => {
      this.client.getData(path(item), (error, data) => {
        if (error instanceof Exception && error.code === Exception.NO_NODE) resolve(0);
        else if (error) reject(error);
        else resolve(Number(data));
      });
    });
  }

  write(item: string, left: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.client.mkdirp(path(item), (missing) => {
        if (missing) {
          reject(missing);
          return;
        }
        this.client.setData(path(item), Buffer.from(String(left)), (error) => {
          if (error) reject(error);
          else resolve();
        });
      });
    });
  }

  onApplicationShutdown(): void {
    this.client.close();
  }
}

function path(item: string): string {
  return `/stock/${encodeURIComponent(item)}`;
}
