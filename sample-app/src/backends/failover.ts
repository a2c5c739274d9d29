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
        // Orders stand still for about the time that it takes to miss Redis, and a window. The defaults are more patient.
        main: new FailoverProvider({
          engines: ['redis', 'mysql'],
          record: 'mysql',
          window: '2s',
          probeEvery: '500ms',
          probeTimeout: '500ms',
        }),
      },
    },
    stock: new SqlStock(dataSource),
  };
}
