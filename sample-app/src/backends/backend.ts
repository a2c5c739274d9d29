import type { DistributedLockModuleOptions } from 'nestjs-distributed-lock';
import type { Stock } from '../stock/stock.js';

/** What the shop runs on: where its locks live, and where its stock does. */
export interface Backend {
  readonly locks: Pick<DistributedLockModuleOptions, 'provider' | 'providers' | 'default'>;
  readonly stock: Stock;
}
