import { TypeOrmRowLockProvider } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';
import type { Backend } from './backend.js';
import { SqlStock, StockItem } from './sql-stock.js';

/** Any number of processes on one database, which keeps the locks and the stock. */
export async function sql(type: 'mysql' | 'postgres', url: string, sessionGuard = '30s'): Promise<Backend> {
  const dataSource = await openShopDatabase(type, url);
  return {
    locks: { provider: new TypeOrmRowLockProvider({ dataSource, synchronize: true, fencing: true, sessionGuard }) },
    stock: new SqlStock(dataSource),
  };
}

/** Creating tables is for a sample; an application has migrations. */
export function openShopDatabase(type: 'mysql' | 'postgres', url: string): Promise<DataSource> {
  return new DataSource({ type, url, entities: [StockItem], synchronize: true }).initialize();
}
