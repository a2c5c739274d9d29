import type { OnApplicationShutdown } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { Stock } from '../stock/stock.js';

/** Keeps the stock in Redis, read and written in two steps. */
export class RedisStock extends Stock implements OnApplicationShutdown {
  constructor(private readonly client: Redis) {
    super();
  }

  async read(item: string): Promise<number> {
    return Number(await this.client.get(`stock:${item}`));
  }

  async write(item: string, left: number): Promise<void> {
    await this.client.set(`stock:${item}`, left);
  }

  onApplicationShutdown(): void {
    this.client.disconnect();
  }
}
