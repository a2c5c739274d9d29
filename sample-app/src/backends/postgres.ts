import { SqlRowLockProvider } from 'nestjs-distributed-lock/sql';
import type { Backend } from './backend.js';
import { PostgresStock } from './postgres-stock.js';

/** Any number of processes on one Postgres, which keeps the locks and the stock. */
export async function postgres(url: string, sessionGuard = '30s'): Promise<Backend> {
  return {
    locks: { provider: new SqlRowLockProvider({ url, synchronize: true, fencing: true, sessionGuard }) },
    stock: await PostgresStock.open(url),
  };
}
