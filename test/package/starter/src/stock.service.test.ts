import { Test } from '@nestjs/testing';
import { LockBusyError } from 'nestjs-distributed-lock';
import { provideLockServiceStub } from 'nestjs-distributed-lock/testing';
import { StockService } from './stock.service.js';

describe('StockService', () => {
  it('locks the item', async () => {
    const locks = provideLockServiceStub();
    const module = await Test.createTestingModule({ providers: [StockService, locks] }).compile();
    const stock = module.get(StockService);
    await stock.reserve('book', async () => {});
    await stock.sell('book');
    expect(locks.acquired).toEqual(['reserve:book', 'sell:book']);

    locks.busy('sell:book');
    await expect(stock.sell('book')).rejects.toThrow(LockBusyError);
  });
});
