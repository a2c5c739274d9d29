import { FailoverLockProvider } from 'nestjs-distributed-lock/composite';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { SqlRowLockProvider } from 'nestjs-distributed-lock/sql';
import type { Backend } from './backend.js';
import { MySqlStock } from './mysql-stock.js';

/** Any number of processes whose locks live in Redis, and in the database that keeps the stock while Redis is down. */
export async function failover(redisUrl: string, mysqlUrl: string): Promise<Backend> {
  return {
    locks: {
      default: 'main',
      providers: {
        redis: new RedisLockProvider({ url: redisUrl }),
        mysql: new SqlRowLockProvider({ url: mysqlUrl, synchronize: true, fencing: true }),
        // Orders pause for about the time that it takes to find Redis down, and a window. The default is longer.
        main: new FailoverLockProvider({
          providers: ['redis', 'mysql'],
          casStore: 'mysql',
          window: '3s',
        }),
      },
    },
    stock: await MySqlStock.open(mysqlUrl),
  };
}
