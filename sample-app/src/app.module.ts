import { Module } from '@nestjs/common';
import { DistributedLockModule } from 'nestjs-distributed-lock';
import { OrdersController } from './orders/orders.controller.js';
import { OrdersService } from './orders/orders.service.js';
import { MemoryStock } from './stock/memory-stock.js';
import { Stock } from './stock/stock.js';

/** A small shop. Its locks live in this process: the embedded default, with nothing to install. */
@Module({
  imports: [DistributedLockModule.forRoot()],
  controllers: [OrdersController],
  providers: [OrdersService, { provide: Stock, useClass: MemoryStock }],
})
export class AppModule {}
