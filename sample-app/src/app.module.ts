import { type DynamicModule, Module } from '@nestjs/common';
import { DistributedLockModule } from 'nestjs-distributed-lock';
import type { Backend } from './backends/backend.js';
import { OrdersController } from './orders/orders.controller.js';
import { OrdersService } from './orders/orders.service.js';
import { Stock } from './stock/stock.js';

/** A small shop. */
@Module({ controllers: [OrdersController], providers: [OrdersService] })
export class AppModule {
  static on({ locks, stock }: Backend): DynamicModule {
    return {
      module: AppModule,
      imports: [DistributedLockModule.forRoot({ ...locks, namespace: 'shop' })],
      providers: [{ provide: Stock, useValue: stock }],
    };
  }
}
