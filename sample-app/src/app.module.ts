import { type DynamicModule, Module } from '@nestjs/common';
import { DistributedLockModule, type DistributedLockModuleOptions } from 'nestjs-distributed-lock';
import type { Backend } from './backends/backend.js';
import { Freezer } from './live/freezer.js';
import { Reporter } from './live/reporter.js';
import { OrdersController } from './orders/orders.controller.js';
import { OrdersService } from './orders/orders.service.js';
import { Stock } from './stock/stock.js';

/** A small shop. */
@Module({ controllers: [OrdersController], providers: [OrdersService, Freezer, Reporter] })
export class AppModule {
  static on({ locks, stock }: Backend, defaults: DistributedLockModuleOptions['defaults']): DynamicModule {
    return {
      module: AppModule,
      imports: [DistributedLockModule.forRoot({ ...locks, namespace: 'shop', defaults })],
      providers: [{ provide: Stock, useValue: stock }],
    };
  }
}
