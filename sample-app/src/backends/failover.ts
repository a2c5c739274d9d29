import { FailoverProvider } from 'nestjs-distributed-lock';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { TypeOrmRowLockProvider } from 'nestjs-distributed-lock/typeorm';
import type { Backend } from './backend.js';
import { openShopDatabase } from './sql.js';
import { SqlStock } from './sql-stock.js';

/** Any number of processes whose locks live in Redis, and in the database that keeps the stock while Redis is down. */
export async function failover(redisUrl: string, mysqlUrl: string): Promise<Backend> {
  const dataSource = await openShopDatabase('mysql', mysqlUrl);
  return {
    locks: {
      default: 'main',
      providers: {
        redis: new RedisLockProvider({ url: redisUrl }),
        mysql: new TypeOrmRowLockProvider({ dataSource, synchronize: true, fencing: true }),
        // Orders pause for about the time that it takes to find Redis down, and a window. The defaults are longer.
        main: new FailoverProvider({
          providers: ['redis', 'mysql'],
          casStore: 'mysql',
          window: '2s',
          probeInterval: '1s',
        }),
      },
    },
    stock: new SqlStock(dataSource),
  };
}
