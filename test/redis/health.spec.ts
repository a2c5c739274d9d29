import { Injectable, type LoggerService, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TerminusModule } from '@nestjs/terminus';
import { DistributedLockModule, LockService } from '../../lib/index.js';
import { LockHealthIndicator } from '../../lib/nest/health/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { until } from './seam.js';

/** What an application says of its provider's backend. */
class Reports implements LoggerService {
  readonly lines: string[] = [];
  log = () => undefined;
  error = () => undefined;
  warn = (message: unknown) => {
    this.lines.push(String(message).replace(/ does not answer:.*/, ' does not answer'));
  };
}

@Injectable()
class Readiness {
  constructor(private readonly locks: LockHealthIndicator) {}

  async is(wanted: 'up' | 'down'): Promise<void> {
    let last: unknown;
    await until(
      async () => {
        last = (await this.locks.pingCheck('redis')).redis;
        return (last as { status: string }).status === wanted;
      },
      `the provider is ${wanted}`,
      15_000,
      () => last,
    );
  }
}

describe('an application whose Redis is down at its boot, comes, goes and returns', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedisServer();
  });
  afterAll(() => server.stop());

  it('says so, and locks again without a restart', async () => {
    @Module({
      imports: [
        TerminusModule.forRoot({ logger: false }),
        DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url: server.url }), failFast: false }),
      ],
      providers: [LockHealthIndicator, Readiness],
    })
    class AppModule {}
    const logger = new Reports();
    const restart = server.crash({ downFor: 1_000 });
    const app = await NestFactory.createApplicationContext(AppModule, { logger, abortOnError: false });
    try {
      const readiness = app.get(Readiness);
      await readiness.is('down');
      await restart;
      await readiness.is('up');
      const again = server.crash({ downFor: 1_000 });
      await readiness.is('down');
      await again;
      await readiness.is('up');
      expect(await app.get(LockService).withLock('a', () => 'done')).toBe('done');
      const [silent, back] = ['does not answer', 'answers again.'].map((what) => `Lock provider "default" ${what}`);
      expect(logger.lines.filter((line) => line.includes('answer'))).toEqual([silent, back, silent, back]);
    } finally {
      await app.close();
    }
  }, 60_000);
});
