import { Injectable, type LoggerService, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TerminusModule } from '@nestjs/terminus';
import { DistributedLockModule, LockService } from '../../lib/index.js';
import { LockHealthIndicator } from '../../lib/integrations/terminus/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { until } from './seam.js';

/** What an application says of its provider's backend. */
class Reports implements LoggerService {
  readonly lines: string[] = [];
  log = () => undefined;
  error = () => undefined;
  warn = (message: unknown) => {
    this.lines.push(String(message).replace(/ is not responding:.*/, ' is not responding'));
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
      30_000,
      () => last,
    );
  }
}

describe('an application whose Redis is down at its boot, comes, goes and returns', () => {
  let server: RedisServer;
  // It refuses connections while the server is to be down, so the test decides how long that is.
  let address: TcpProxy;
  beforeAll(async () => {
    server = await startRedisServer();
    address = await startTcpProxy(server.port);
  });
  afterAll(async () => {
    await address.close();
    await server.stop();
  });

  it('says so, and locks again without a restart', async () => {
    const url = `redis://127.0.0.1:${address.port}`;
    const crash = async () => {
      address.refuse();
      await server.crash();
    };
    @Module({
      imports: [
        TerminusModule.forRoot({ logger: false }),
        DistributedLockModule.forRoot({ provider: new RedisLockProvider({ url }), failFast: false }),
      ],
      providers: [LockHealthIndicator, Readiness],
    })
    class AppModule {}
    const logger = new Reports();
    await crash();
    const app = await NestFactory.createApplicationContext(AppModule, { logger, abortOnError: false });
    try {
      const readiness = app.get(Readiness);
      await readiness.is('down');
      address.admit();
      await readiness.is('up');
      await crash();
      await readiness.is('down');
      address.admit();
      await readiness.is('up');
      expect(await app.get(LockService).withLock('a', () => 'done')).toBe('done');
      const [silent, back] = ['is not responding', 'is responding again.'].map(
        (what) => `Lock provider "default" ${what}`,
      );
      expect(logger.lines.filter((line) => line.includes('respond'))).toEqual([silent, back, silent, back]);
    } finally {
      await app.close();
    }
  }, 150_000);
});
