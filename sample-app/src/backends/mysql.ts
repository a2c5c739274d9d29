import { SqlRowLockProvider } from 'nestjs-distributed-lock/sql';
import type { Backend } from './backend.js';
import { MySqlStock } from './mysql-stock.js';

/** Any number of processes on one MySQL or MariaDB, which keeps the locks and the stock. */
export async function mysql(url: string, sessionGuard = '30s'): Promise<Backend> {
  return {
    locks: { provider: new SqlRowLockProvider({ url, synchronize: true, fencing: true, sessionGuard }) },
    stock: await MySqlStock.open(url),
  };
}
