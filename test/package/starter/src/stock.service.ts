import { Injectable } from '@nestjs/common';
import { DistributedLock, lockKey, LockService } from 'nestjs-distributed-lock';

@Injectable()
export class StockService {
  sold = 0;

  constructor(private readonly locks: LockService) {}

  @DistributedLock('sell:#{item}')
  async sell(item: string): Promise<string> {
    const { sold } = this;
    await new Promise((resolve) => setTimeout(resolve, 5));
    this.sold = sold + 1;
    return item;
  }

  async reserve(item: string, save: () => Promise<void>): Promise<void> {
    await this.locks.withLock(lockKey`reserve:${item}`, save);
  }
}
