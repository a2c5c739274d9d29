import type { OnApplicationShutdown } from '@nestjs/common';
import type { Redis } from 'ioredis';
import { Stock } from '../stock/stock.js';

// Tokens are compared as text, by length first, because Lua numbers are exact only up to 2^53.
const WRITE = `
  local seen, token = redis.call('HGET', KEYS[1], 'fence') or '', ARGV[2]
  if token then
    if #token < #seen or (#token == #seen and token < seen) then return 0 end
    redis.call('HSET', KEYS[1], 'fence', token)
  end
  redis.call('HSET', KEYS[1], 'left', ARGV[1])
  return 1`;

/** Keeps the stock in Redis, read and written in two steps. */
export class RedisStock extends Stock implements OnApplicationShutdown {
  constructor(private readonly client: Redis) {
    super();
  }

  async read(item: string): Promise<number> {
    return Number(await this.client.hget(`shop:stock:${item}`, 'left'));
  }

  async write(item: string, left: number, token: bigint | null): Promise<boolean> {
    const tokens = token === null ? [] : [String(token)];
    return (await this.client.eval(WRITE, 1, `shop:stock:${item}`, left, ...tokens)) === 1;
  }

  onApplicationShutdown(): void {
    this.client.disconnect();
  }
}
