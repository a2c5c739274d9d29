import { Injectable, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { DistributedLock, DistributedLockModule, LockBusyError, MemoryLockProvider } from '../../../lib/index.js';
import { CountingProvider } from '../../backends.js';

@Injectable()
class Reports {
  running = 0;
  most = 0;
  readonly ends: (() => void)[] = [];

  @DistributedLock('report:#{tenant}', { limit: 2, wait: '30s' })
  async heavy(tenant: string): Promise<string> {
    this.running += 1;
    this.most = Math.max(this.most, this.running);
    await new Promise<void>((resolve) => this.ends.push(resolve));
    this.running -= 1;
    return tenant;
  }

  @DistributedLock('report:#{tenant}', { limit: 2, weight: 2, wait: 0 })
  async alone(tenant: string): Promise<string> {
    return tenant;
  }
}

it('a decorated method runs as often at a time as its limit says', async () => {
  const imports = [DistributedLockModule.forRoot({ provider: new MemoryLockProvider() })];
  const app = await Test.createTestingModule({ imports, providers: [Reports] }).compile();
  await app.init();
  const reports = app.get(Reports);
  const calls = Array.from({ length: 5 }, () => reports.heavy('acme'));
  for (let ended = 0; ended < 5; ended += 1) {
    while (reports.ends.length === 0) await new Promise((resolve) => setImmediate(resolve));
    await expect(reports.alone('acme')).rejects.toThrow(LockBusyError);
    await expect(reports.alone('other')).resolves.toBe('other');
    reports.ends.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all(calls);
  expect(reports.most).toBe(2);
  await expect(reports.alone('acme')).resolves.toBe('acme');
  await app.close();
});

it('a provider without limits fails the boot', async () => {
  class Unlimited extends CountingProvider {
    protected override readonly capabilities = { limits: false };
  }
  @Module({ imports: [DistributedLockModule.forRoot({ provider: new Unlimited() })], providers: [Reports] })
  class AppModule {}
  const boot = Test.createTestingModule({ imports: [AppModule] })
    .compile()
    .then((app) => app.init());
  await expect(boot).rejects.toThrow(/Reports\.heavy: Lock provider "default" cannot enforce "limit": remove it/);
});
