import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import { Controller, Get, type INestApplication, Injectable, type LoggerService, Module, Post } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { HealthCheck, HealthCheckService, TerminusModule } from '@nestjs/terminus';
import { DataSource } from 'typeorm';
import { currentLock, DistributedLock, DistributedLockModule, LockAdmin, LockService } from '../../lib/index.js';
import { LockHealthIndicator } from '../../lib/integrations/terminus/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { until } from '../until.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { type SqlServer, startMariaDb, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { withIntervals } from './fleet-rig.js';
import { Redis } from 'ioredis';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { SqlVersionLockProvider } from '../../lib/providers/sql/index.js';

const PATIENT = 60_000;

const redisThenMariaDb = () =>
  withIntervals(
    new FailoverLockProvider({ providers: ['redis', 'mysql'], casStore: 'mysql', window: '3s' }),
    // A probe may take half of this interval. A slow provider must not count as down.
    { probeInterval: 3_000 },
  );

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

describe('an application with a failover provider', () => {
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
            // Without fencing tokens, so it is weaker than the first provider.
            mysql: new TypeOrmRowLockProvider({ dataSource, synchronize: true }),
            main: redisThenMariaDb(),
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
  /** Returns the health once the locks are up. It polls, because a ping with a late reply counts as down. */
  const whenUp = async () => {
    let last: unknown;
    for (const end = Date.now() + PATIENT; Date.now() < end;) {
      last = await health();
      if ((last as { locks: { status: string } }).locks.status === 'up') break;
    }
    return last;
  };

  it('logs at boot which standby is weaker, and what the loss of the record costs', () => {
    expect(warnings).toContain(
      'Lock provider "main": No provider offers fencing tokens, because they are not supported by "mysql".',
    );
    expect(warnings.find((warning) => warning.includes('If "mysql" is lost'))).toMatch(/use a third one as "casStore"/);
  });

  it('locks without knowing the providers behind it, even after a manual switch, which emits an event', async () => {
    expect(await ask('POST', '/orders')).toEqual({ code: 201, body: { provider: 'main' } });
    await failover.switchTo('mysql');
    expect(failover.state).toMatchObject({ active: 'mysql', epoch: 2 });
    expect(await ask('POST', '/orders')).toEqual({ code: 201, body: { provider: 'main' } });
    expect(switches).toEqual([{ provider: 'main', to: 'mysql', epoch: 2, reason: 'manual' }]);
  }, 150_000);

  it('is healthy while any provider grants locks', async () => {
    expect(await whenUp()).toMatchObject({ locks: { status: 'up' }, redis: { status: 'up' } });
    await failover.switchTo('redis');
    await until(() => failover.state.active === 'redis', 'it is on Redis again', PATIENT);
    redis.signal('SIGSTOP');
    await until(() => failover.state.active === 'mysql', 'it is on MariaDB', PATIENT);
    expect(await whenUp()).toMatchObject({ locks: { status: 'up' }, redis: { status: 'down' } });
    redis.signal('SIGCONT');
    expect(failover.state.history.map(({ reason }) => reason)).toEqual(['manual', 'manual', 'failure']);
  }, 300_000);
});

interface Instance {
  readonly locks: LockManager;
  readonly main: FailoverBackend;
  readonly wire: TcpProxy;
  stop(): Promise<void>;
}

describe('a failover from Redis to MariaDB, with the record on MariaDB', () => {
  let mariadb: SqlServer;
  let redis: RedisServer;
  let instances: Instance[];

  beforeAll(async () => {
    mariadb = await startMariaDb();
  }, 60_000);
  afterAll(() => mariadb.stop());

  const instance = async (namespace: string): Promise<Instance> => {
    const dataSource = await new DataSource({ type: 'mariadb', url: mariadb.url }).initialize();
    const wire = await startTcpProxy(redis.port);
    const locks = new LockManager({
      providers: {
        redis: new RedisLockProvider({ url: `redis://127.0.0.1:${wire.port}`, commandTimeout: '1s' }),
        mysql: new TypeOrmRowLockProvider({ dataSource, synchronize: true, fencing: true }),
        main: redisThenMariaDb(),
      },
      default: 'main',
      namespace,
      shutdownGrace: 0,
    });
    await locks.start();
    const stop = async () => {
      await locks.stop();
      await dataSource.destroy();
      await wire.close();
    };
    return { locks, main: locks.admin.backend(FailoverBackend, 'main'), wire, stop };
  };

  let runs = 0;
  beforeEach(async () => {
    redis = await startRedisServer();
    const namespace = `faults-${(runs += 1)}`;
    instances = await Promise.all([instance(namespace), instance(namespace), instance(namespace)]);
  }, 120_000);
  afterEach(async () => {
    await Promise.all(instances.map((each) => each.stop()));
    await redis.stop();
  }, 60_000);

  const active = () => instances.map(({ main }) => main.state.active);

  it('switches to MariaDB when Redis is out of memory, although Redis still renews held locks', async () => {
    const [one, two] = instances as [Instance, Instance];
    // So many, at such intervals, that one of them is always being renewed.
    for (let count = 0; count < 60; count += 1) {
      await Promise.all([one.locks.acquire(`held:${count}`), two.locks.acquire(`also:${count}`)]);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const admin = new Redis(redis.port);
    await admin.config('SET', 'maxmemory', '1');
    admin.disconnect();
    await expect(one.locks.acquire('new', { wait: 0 })).rejects.toThrow('OOM');
    await until(() => active().every((provider) => provider === 'mysql'), 'all are on MariaDB', PATIENT);
    await (await one.locks.acquire('new', { wait: '1m' })).release();
  }, 240_000);

  it('does not switch if only one instance cannot reach Redis', async () => {
    const [lonely, other] = instances as [Instance, Instance];
    lonely.wire.refuse();
    await until(() => lonely.main.state.providers['redis'] === 'down', 'it finds Redis down', PATIENT);
    await expect(lonely.locks.acquire('k', { wait: 1_500 })).rejects.toThrow(LockUnavailableError);
    expect(active()).toEqual(['redis', 'redis', 'redis']);
    await (await other.locks.acquire('k', { wait: '1m' })).release();
  }, 150_000);
});

/** A server that doesn't accept writes yet. */
interface ReadOnly {
  readonly provider: LockProvider;
  /** Makes the server accept writes. */
  promote(): Promise<unknown>;
  stop(): Promise<unknown>;
}

const locked = (locks: LockManager, provider: string): Promise<unknown> =>
  locks
    .withLock('k', () => 'done', { provider, wait: 0 })
    .then(
      (value) => value,
      (error: unknown) => error,
    );

const KINDS: Readonly<Record<string, () => Promise<ReadOnly>>> = {
  'a replica of Redis': async () => {
    const master = await startRedisServer();
    const server = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(master.port)] });
    const admin = new Redis(server.url);
    return {
      provider: new RedisLockProvider({ url: server.url, commandTimeout: '10s' }),
      promote: () => admin.replicaof('NO', 'ONE'),
      stop: async () => {
        admin.disconnect();
        await Promise.all([server.stop(), master.stop()]);
      },
    };
  },
  'a read-only MySQL or MariaDB': async () => {
    const server = await startMySqlOrMariaDb();
    const admin = await createConnection(server.url.replace('mariadb:', 'mysql:'));
    await admin.query('SET GLOBAL read_only = ON');
    return {
      provider: new SqlVersionLockProvider({ url: server.url, synchronize: true, commandTimeout: '10s' }),
      promote: () => admin.query('SET GLOBAL read_only = OFF'),
      stop: async () => {
        await admin.end();
        await server.stop();
      },
    };
  },
  'a read-only Postgres': async () => {
    const server = await startPostgres();
    const admin = new pg.Client(server.url);
    await admin.connect();
    await admin.query('ALTER DATABASE postgres SET default_transaction_read_only = on');
    return {
      provider: new SqlVersionLockProvider({ url: server.url, synchronize: true, commandTimeout: '10s' }),
      promote: async () => {
        await admin.query('SET default_transaction_read_only = off');
        await admin.query('ALTER DATABASE postgres RESET default_transaction_read_only');
      },
      stop: async () => {
        await admin.end();
        await server.stop();
      },
    };
  },
};

describe('a member that is read-only at boot is logged without failing the boot, and is used once it accepts writes:', () => {
  const ends: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  }, 60_000);

  it.each(Object.entries(KINDS))(
    '%s',
    async (_, start) => {
      const [closed, record] = await Promise.all([start(), startPostgres()]);
      ends.push(
        () => record.stop(),
        () => closed.stop(),
      );
      const log: string[] = [];
      const say = (message: string) => log.push(message);
      const settings = { shutdownGrace: 0, logger: { debug: () => undefined, warn: say, error: say } };
      // A member counts as silent after half of the interval. One must reply at boot, even on a busy machine.
      const locks = new LockManager({
        providers: {
          failover: withIntervals(new FailoverLockProvider({ providers: ['closed', 'open'], casStore: 'open' }), {
            probeInterval: 10_000,
          }),
          closed: closed.provider,
          open: new SqlVersionLockProvider({ url: record.url, synchronize: true, commandTimeout: '10s' }),
        },
        default: 'failover',
        ...settings,
      });
      // The combined provider needs all of its members.
      const providers = {
        both: new CombinedLockProvider({ providers: ['closed', 'memory'] }),
        closed: closed.provider,
        memory: new MemoryLockProvider(),
      };
      const combined = [true, false].map(
        (failFast) => new LockManager({ providers, default: 'both', failFast, ...settings }),
      );
      for (const each of [locks, ...combined]) ends.push(() => each.stop());
      const [strict, patient] = combined as [LockManager, LockManager];
      await expect(strict.start()).rejects.toThrow(/"both" needs all of its providers, but "closed" did not respond/);
      await patient.start();
      await locks.start();
      expect(log).toContainEqual(
        expect.stringMatching(
          /provider "closed" is not responding: .*(replica|read-only).*(Give|Configure) the provider/,
        ),
      );
      await until(async () => (await locked(locks, 'failover')) === 'done', 'the other member is used', 60_000);
      expect(await locked(patient, 'both')).toBeInstanceOf(Error);
      await closed.promote();
      await until(async () => (await locked(patient, 'both')) === 'done', 'it accepts writes', 60_000);
      await until(async () => (await locked(locks, 'closed')) === 'done', 'it accepts writes', 60_000);
    },
    180_000,
  );
});
