import { Injectable, type LoggerService, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DistributedLock, DistributedLockModule, LockService, MemoryLockProvider } from '../../../lib/index.js';
import { liveServices } from '../../../lib/nest/service/service-slot.js';

@Injectable()
class Payments {
  @DistributedLock('pay', { wait: 0 })
  async pay() {
    return 'paid';
  }
}

async function boot(payments: Payments, warnings: string[] = []) {
  @Module({
    imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
    providers: [{ provide: Payments, useValue: payments }],
  })
  class App {}
  const logger: LoggerService = {
    log: () => undefined,
    error: () => undefined,
    warn: (message: string) => void warnings.push(message),
  };
  return await NestFactory.createApplicationContext(App, { logger, abortOnError: false });
}

it('an instance that two live applications share is warned of, and belongs to the other one when the first has stopped', async () => {
  const shared = new Payments();
  const warnings: string[] = [];
  const one = await boot(shared);
  const other = await boot(shared, warnings);
  expect(warnings).toEqual([expect.stringMatching(/An instance of Payments is shared with another live application/)]);
  await one.close();
  await expect(shared.pay()).resolves.toBe('paid');
  const lock = await other.get(LockService).acquire('pay');
  await expect(shared.pay()).rejects.toMatchObject({ code: 'LOCK_BUSY' });
  await lock.release();
  await other.close();
  const later = await boot(shared);
  await expect(shared.pay()).resolves.toBe('paid');
  await later.close();
});

it('an application whose boot has failed does not count as live', async () => {
  @Module({
    imports: [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })],
    providers: [
      {
        provide: 'fails',
        inject: [LockService],
        useFactory: () => {
          throw new Error('It fails.');
        },
      },
    ],
  })
  class Bad {}
  for (let round = 0; round < 2; round += 1) {
    await expect(NestFactory.createApplicationContext(Bad, { logger: false, abortOnError: false })).rejects.toThrow(
      'It fails.',
    );
  }
  const app = await boot(new Payments());
  expect(liveServices.size).toBe(1);
  await expect(new Payments().pay()).resolves.toBe('paid');
  await app.close();
});
