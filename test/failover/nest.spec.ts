import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import { Controller, Get, Injectable, type LoggerService, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { INestApplication } from '@nestjs/common';
import { HealthCheck, HealthCheckService, TerminusModule } from '@nestjs/terminus';
import { DataSource } from 'typeorm';
import { currentLock, DistributedLock, DistributedLockModule, LockAdmin, LockService } from '../../lib/index.js';
import { FailoverLockProvider } from '../../lib/composite.js';
import { LockHealthIndicator } from '../../lib/integrations/terminus/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { until } from '../redis/seam.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { type SqlServer, startMariaDb } from '../servers/sql-server.mjs';
import { withIntervals } from './fleet-rig.js';

const PATIENT = 60_000;

@Injectable()
class Orders {
  @DistributedLock('order:#{id}', { wait: '1m' })
  async pay(id: number) {
    const { provider, fencingToken } = currentLock();
    return Promise.resolve({ id, provider, fencingToken });
  }
}

@Controller()
class Shop {
  constructor(
    private readonly orders: Orders,
    private readonly health: HealthCheckService,
    private readonly locks: LockHealthIndicator,
  ) {}

  @Post('orders')
  async pay() {
    const { provider } = await this.orders.pay(7);
    return { provider };
  }

  @Get('ready')
  @HealthCheck()
  ready() {
    return this.health.check([
      () => this.locks.pingCheck('locks'),
      () => this.locks.pingCheck('redis', { provider: 'redis' }),
    ]);
  }
}

describe('an application with a failover among its providers', () => {
  let redis: RedisServer;
  let mariadb: SqlServer;
  let dataSource: DataSource;
  let app: INestApplication;
  let failover: FailoverBackend;
  const warnings: string[] = [];
  const switches: unknown[] = [];

  beforeAll(async () => {
    [redis, mariadb] = await Promise.all([startRedisServer(), startMariaDb()]);
    dataSource = await new DataSource({ type: 'mariadb', url: mariadb.url }).initialize();
    @Module({
      imports: [
        TerminusModule.forRoot({ logger: false }),
        DistributedLockModule.forRoot({
          default: 'main',
          providers: {
            redis: new RedisLockProvider({ url: redis.url, commandTimeout: '1s' }),
            // No fencing: weaker than the one before it.
            mysql: new TypeOrmRowLockProvider({ dataSource, synchronize: true }),
            main: withIntervals(
              new FailoverLockProvider({ providers: ['redis', 'mysql'], casStore: 'mysql', window: '3s' }),
              {
                // A probe may take half of it: a slow provider must not count as one that is down.
                probeInterval: 3_000,
              },
            ),
          },
          shutdownGrace: 0,
        }),
      ],
      controllers: [Shop],
      providers: [Orders, LockHealthIndicator],
    })
    class AppModule {}
    const warn = (message: unknown) => void warnings.push(String(message));
    const silent = () => undefined;
    const logger: LoggerService = { warn, log: silent, error: silent };
    app = await NestFactory.create(AppModule, { logger, abortOnError: false });
    await app.listen(0, '127.0.0.1');
    app.get(LockService).events.on('failover', (event) => switches.push(event));
    failover = app.get(LockAdmin).backend(FailoverBackend, 'main');
  }, 120_000);
  afterAll(async () => {
    await app.close();
    await dataSource.destroy();
    await Promise.all([redis.stop(), mariadb.stop()]);
  });

  const ask = async (method: string, path: string) => {
    const response = await fetch(`${await app.getUrl()}${path}`, { method });
    return { code: response.status, body: (await response.json()) as Record<string, unknown> };
  };
  const health = async () => (await ask('GET', '/ready')).body['details'];
  /** The health when the locks are up. It asks again, because a ping that is answered late counts as down. */
  const whenUp = async () => {
    let last: unknown;
    for (const end = Date.now() + PATIENT; Date.now() < end;) {
      last = await health();
      if ((last as { locks: { status: string } }).locks.status === 'up') break;
    }
    return last;
  };

  it('hears at boot which standby is weaker, and what the loss of the record costs', () => {
    expect(warnings).toContain(
      'Lock provider "main": No provider offers fencing tokens, because they are not supported by "mysql".',
    );
    expect(warnings.find((warning) => warning.includes('If "mysql" is lost'))).toMatch(/use a third one as "casStore"/);
  });

  it('locks by it without knowing its providers, also after a manual switch, which is an event', async () => {
    expect(await ask('POST', '/orders')).toEqual({ code: 201, body: { provider: 'main' } });
    await failover.switchTo('mysql');
    expect(failover.state).toMatchObject({ active: 'mysql', epoch: 2 });
    expect(await ask('POST', '/orders')).toEqual({ code: 201, body: { provider: 'main' } });
    expect(switches).toEqual([{ provider: 'main', to: 'mysql', epoch: 2, reason: 'manual' }]);
  }, 150_000);

  it('is ready while any provider grants: its health is that of the whole', async () => {
    expect(await whenUp()).toMatchObject({ locks: { status: 'up' }, redis: { status: 'up' } });
    await failover.switchTo('redis');
    await until(() => failover.state.active === 'redis', 'it is back on Redis', PATIENT);
    redis.signal('SIGSTOP');
    await until(() => failover.state.active === 'mysql', 'it has gone over', PATIENT);
    expect(await whenUp()).toMatchObject({ locks: { status: 'up' }, redis: { status: 'down' } });
    redis.signal('SIGCONT');
    expect(failover.state.history.map(({ reason }) => reason)).toEqual(['manual', 'manual', 'failure']);
  }, 300_000);
});
