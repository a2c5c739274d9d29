import type { DistributedLockModuleOptions } from 'nestjs-distributed-lock';
import type { Stock } from '../stock/stock.js';

/** The backend of the shop, for its locks and its stock. */
export interface Backend {
  readonly locks: Pick<DistributedLockModuleOptions, 'provider' | 'providers' | 'default'>;
  readonly stock: Stock;
}
