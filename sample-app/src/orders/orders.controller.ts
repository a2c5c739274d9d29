import { Body, Controller, Get, Param, Post, Put } from '@nestjs/common';
import { Stock } from '../stock/stock.js';
import { type Order, OrdersService } from './orders.service.js';

@Controller()
export class OrdersController {
  constructor(
    private readonly orders: OrdersService,
    private readonly stock: Stock,
  ) {}

  @Post('unguarded/orders')
  sellUnguarded(@Body() order: Order): Promise<{ left: number }> {
    return this.orders.sellUnguarded(order);
  }

  @Post('orders')
  sell(@Body() order: Order): Promise<{ left: number }> {
    return this.orders.sell(order);
  }

  @Get('stock/:item')
  async left(@Param('item') item: string): Promise<{ left: number }> {
    return { left: await this.stock.read(item) };
  }

  @Put('stock/:item')
  async restock(@Param('item') item: string, @Body() { left }: { left: number }): Promise<void> {
    await this.stock.write(item, left, null);
  }
}
