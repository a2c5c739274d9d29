import { FailoverLockProvider } from 'nestjs-distributed-lock/composite';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { SqlRowLockProvider } from 'nestjs-distributed-lock/sql';
import type { Backend } from './backend.js';
import { MySqlStock } from './mysql-stock.js';

/** Any number of processes with locks on Redis or, while Redis is down, in the database that also keeps the stock. */
export async function failover(redisUrl: string, mysqlUrl: string): Promise<Backend> {
  return {
    locks: {
      default: 'main',
      providers: {
        redis: new RedisLockProvider({ url: redisUrl }),
        mysql: new SqlRowLockProvider({ url: mysqlUrl, synchronize: true, fencing: true }),
        // Until the failover, orders wait for the detection of the outage plus a window. The default is longer.
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
