import { Module } from '@nestjs/common';
import { DistributedLockModule } from 'nestjs-distributed-lock';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { StockService } from './stock.service.js';

@Module({
  imports: [
    DistributedLockModule.forRoot({
      namespace: 'stock',
      provider: new RedisLockProvider({ url: process.env['REDIS_URL'] ?? 'redis://localhost:6379' }),
    }),
  ],
  providers: [StockService],
})
export class StockModule {}
