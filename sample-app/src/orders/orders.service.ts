import { ConflictException, Injectable, PreconditionFailedException } from '@nestjs/common';
import { currentLock, DistributedLock } from 'nestjs-distributed-lock';
import { setTimeout as pause } from 'node:timers/promises';
import { Freezer } from '../live/freezer.js';
import { Reporter } from '../live/reporter.js';
import { Stock } from '../stock/stock.js';

export interface Order {
  item: string;
  /** How long the customer's bank takes, in ms. */
  paymentTakes?: number;
}

@Injectable()
export class OrdersService {
  constructor(
    private readonly stock: Stock,
    private readonly freezer: Freezer,
    private readonly reporter: Reporter,
  ) {}

  /** Reads, waits, writes: two orders that read the same stock sell the same item twice. */
  async sellUnguarded(order: Order): Promise<{ left: number }> {
    const left = await this.#takePayment(order, null);
    await this.#write(order, left - 1, null);
    return { left: left - 1 };
  }

  /**
   * Sells one order per item at a time. With the token, the stock can reject an order that was frozen for longer than
   * its lease.
   */
  @DistributedLock('stock:#{order.item}', { wait: '1m' })
  async sell(order: Order): Promise<{ left: number }> {
    const { fencingToken } = currentLock();
    const left = await this.#takePayment(order, fencingToken);
    await this.freezer.pass(fencingToken);
    await this.#write(order, left - 1, fencingToken);
    return { left: left - 1 };
  }

  async #takePayment({ item, paymentTakes }: Order, fencingToken: bigint | null): Promise<number> {
    const left = await this.stock.read(item);
    if (left === 0) throw new ConflictException(`${item} is sold out`);
    this.reporter.report({ type: 'payment', item, fencingToken });
    if (paymentTakes !== undefined) await pause(paymentTakes);
    return left;
  }

  async #write({ item }: Order, left: number, fencingToken: bigint | null): Promise<void> {
    const isAccepted = await this.stock.write(item, left, fencingToken);
    this.reporter.report({ type: 'write', item, left, fencingToken, isAccepted });
    if (!isAccepted) throw new PreconditionFailedException(`A later order has written the stock of ${item}`);
  }
}
