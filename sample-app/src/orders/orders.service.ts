import { ConflictException, Injectable } from '@nestjs/common';
import { DistributedLock } from 'nestjs-distributed-lock';
import { Stock } from '../stock/stock.js';

export interface Order {
  item: string;
}

@Injectable()
export class OrdersService {
  constructor(private readonly stock: Stock) {}

  /** Read, wait, write: two orders that read the same number sell the same item twice. */
  async sellUnguarded(order: Order): Promise<{ left: number }> {
    const left = await this.stock.read(order.item);
    if (left === 0) throw new ConflictException(`${order.item} is sold out`);
    await this.stock.write(order.item, left - 1);
    return { left: left - 1 };
  }

  /** The same, one order for an item at a time. */
  @DistributedLock('stock:#{order.item}', { wait: '1m' })
  async sell(order: Order): Promise<{ left: number }> {
    return this.sellUnguarded(order);
  }
}
