import { Injectable, type LoggerService, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TerminusModule } from '@nestjs/terminus';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { redisForTests, RELEASE, request, twoProcesses, until, untilAnswered } from './seam.js';
import { DistributedLockModule, LockService } from '../../lib/index.js';
import { LockHealthIndicator } from '../../lib/integrations/terminus/index.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

describe('an outage of Redis', () => {
  const redis = redisForTests();
  const processes = twoProcesses(redis);

  it('reports an unsent request as leaving nothing behind, and an unanswered one as possibly granted', async () => {
    const { shaky, proxy } = processes;
    proxy.holdReplies();
    const unanswered = shaky.backend.acquire(request('k')).catch((error: unknown) => error);
    await until(async () => (await redis.admin.keys('*:k')).length === 1, 'the server has executed the request');
    proxy.refuse();
    const lost = await unanswered;
    expect(lost).toBeInstanceOf(LockUnavailableError);
    expect(lost).toMatchObject({ sent: true });
    const unsent = request('k');
    await expect(shaky.backend.acquire(unsent)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', sent: false });
    // Nothing is sent for it later, either.
    expect(await shaky.backend.release(unsent, RELEASE)).toBe('lost');
    proxy.admit();
  });

  it('reports a request that got no reply and then could not be resent as possibly granted', async () => {
    const { shaky, proxy } = processes;
    proxy.holdReplies();
    const attempt = request('k');
    const unanswered = shaky.backend.acquire(attempt).catch((error: unknown) => error);
    await until(async () => (await redis.admin.keys('*:k')).length === 1, 'the server has executed the request');
    proxy.refuse();
    await unanswered;
    await expect(shaky.backend.acquire(attempt)).rejects.toThrow(LockUnavailableError);
    expect(await shaky.backend.release(attempt, RELEASE)).toBe('unknown');
    proxy.passReplies();
    proxy.admit();
    // The core repeats the release until it is answered.
    expect(await untilAnswered(() => shaky.backend.release(attempt, RELEASE))).toBe('released');
    expect(await redis.admin.keys('*:k')).toEqual([]);
  });

  it('leaves no work behind for attempts that were never sent', async () => {
    const clock = new FakeClock();
    const provider = new RedisLockProvider({ url: 'redis://127.0.0.1:1' });
    const locks = new LockManager({ providers: { redis: provider }, clock, failFast: false });
    await locks.start();
    const timers = clock.pendingTimers;
    // Waiting attempts poll repeatedly, and none of their requests is sent.
    const wait = (index: number) => (index % 2 === 0 ? 0 : 2_000);
    const attempts = Promise.allSettled(
      Array.from({ length: 1_000 }, (_, index) => locks.acquire(`k${index}`, { wait: wait(index) })),
    );
    for (let step = 0; step < 40; step += 1) await clock.advance(100);
    expect((await attempts).map(({ status }) => status)).toEqual(Array.from({ length: 1_000 }, () => 'rejected'));
    expect(clock.pendingTimers).toBe(timers);
    const stopped = locks.stop();
    for (let step = 0; step < 40; step += 1) await clock.advance(100);
    await stopped;
  });

  it('costs a single timer for all unanswered attempts, which are released when Redis is back', async () => {
    const clock = new FakeClock();
    const { proxy } = processes;
    const provider = new RedisLockProvider({ url: `redis://127.0.0.1:${proxy.port}`, commandTimeout: '1h' });
    const locks = new LockManager({ providers: { redis: provider }, clock });
    await locks.start();
    const timers = clock.pendingTimers;
    proxy.holdReplies();
    const attempts = Promise.allSettled(
      Array.from({ length: 200 }, (_, index) => locks.tryAcquire(`many:${index}`, { lease: 600_000 })),
    );
    await until(async () => (await redis.admin.keys('*many:*')).length === 200, 'the server has executed all requests');
    proxy.refuse();
    for (let step = 0; step < 30; step += 1) {
      await clock.advance(100);
      await locks.admin.inspect('nothing').catch(() => undefined);
    }
    await attempts;
    // The timer of the pending releases, and those of reconnects.
    expect(clock.pendingTimers - timers).toBeLessThan(10);
    proxy.passReplies();
    proxy.admit();
    await until(async () => {
      await clock.advance(1_000);
      return (await redis.admin.keys('*many:*')).length === 0;
    }, 'all are released');
    const stopped = locks.stop();
    for (let step = 0; step < 30; step += 1) await clock.advance(100);
    await stopped;
  });

  it('leaves nothing locked by a request that is sent before it and executed after it, however long it lasts', async () => {
    const clock = new FakeClock();
    const locks = new LockManager({ providers: { redis: new RedisLockProvider({ url: redis.server.url }) }, clock });
    await locks.start();
    // Makes the server load the script.
    await (await locks.acquire('warm')).release();
    const [LEASE, WAIT] = [60_000, 200_000];
    redis.server.signal('SIGSTOP');
    const asked = locks.acquire('k', { lease: LEASE, wait: WAIT }).catch((error: unknown) => error);
    // The request's connection is given up, and nothing can be sent when its caller leaves.
    for (let time = 0; time < WAIT + 2 * LEASE; time += 1_000) {
      await clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await asked).toBeInstanceOf(LockUnavailableError);
    redis.server.signal('SIGCONT');
    await until(async () => {
      await clock.advance(100);
      return (await locks.admin.inspect('nothing').catch(() => undefined)) === null;
    }, 'the connection is back');
    await until(async () => {
      await clock.advance(100);
      return (await redis.admin.keys('*:k')).length === 0;
    }, 'the lock granted late is released');
    const stopped = locks.stop();
    for (let step = 0; step < 30; step += 1) await clock.advance(100);
    await stopped;
  });

  it('is reported once, however many callers lock, renew and leave while Redis is frozen and after it resumes', async () => {
    const provider = new RedisLockProvider({ url: redis.server.url, commandTimeout: 500 });
    const locks = new LockManager({ providers: { redis: provider } });
    await locks.start();
    const reported: unknown[] = [];
    locks.events.on('unavailable', (event) => reported.push(event));
    const state = { served: 0, refused: 0, isOver: false };
    const callers = Array.from({ length: 60 }, async (_, index) => {
      while (!state.isOver) {
        const task = () => new Promise<void>((resolve) => setTimeout(resolve, (index % 4) * 50));
        const outcome = await locks
          .withLock(`k${index % 40}`, task, { wait: 300, lease: 1_000 })
          .catch((error: unknown) => error);
        if (outcome) state.refused += 1;
        else state.served += 1;
      }
    });
    await until(() => state.served > 200, 'callers are served');
    redis.server.signal('SIGSTOP');
    await until(() => reported.length > 0 && state.refused > 500, 'callers are refused');
    redis.server.signal('SIGCONT');
    const before = state.served;
    await until(() => state.served > before + 500, 'callers are served again');
    state.isOver = true;
    await Promise.all(callers);
    expect(reported).toHaveLength(1);
    await locks.stop();
  }, 60_000);
});

/** Collects the warnings that an application logs about its provider's backend. */
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

describe('an application whose Redis is down at boot, starts, crashes, and returns', () => {
  let server: RedisServer;
  // The proxy refuses connections while the server is supposed to be down, so the test decides how long that lasts.
  let address: TcpProxy;
  beforeAll(async () => {
    server = await startRedisServer();
    address = await startTcpProxy(server.port);
  });
  afterAll(async () => {
    await address.close();
    await server.stop();
  });

  it('logs each outage, and locks again without a restart', async () => {
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

const SENT = { release: 'sent', lease: 60_000 } as const;

describe("release: 'sent' on Redis", () => {
  const redis = redisForTests();
  let proxy: TcpProxy;
  let locks: LockManager;
  const events: string[] = [];

  beforeEach(async () => {
    proxy = await startTcpProxy(redis.server.port);
    const provider = new RedisLockProvider({ url: `redis://127.0.0.1:${proxy.port}`, commandTimeout: '10s' });
    locks = new LockManager({ providers: { redis: provider } });
    events.length = 0;
    for (const name of ['released', 'release-pending', 'lost'] as const) locks.events.on(name, () => events.push(name));
    await locks.start();
  });
  afterEach(async () => {
    await locks.stop();
    await proxy.close();
  });

  it('a call returns without waiting for the reply', async () => {
    await locks.withLock('k', () => proxy.holdReplies(), SENT);
    expect(events).toEqual([]);
    proxy.passReplies();
    await until(() => events.includes('released'), 'the reply arrives');
  });

  it('the next acquire in the same process is never busy because of the release', async () => {
    for (let round = 0; round < 300; round += 1) {
      await locks.withLock('k', () => undefined, { ...SENT, wait: 0 });
      if (round % 3 === 0) await locks.withLock(['k', 'l'], () => undefined, { ...SENT, wait: 0 });
    }
  });

  it('the next acquire in the same process is not busy if the connection is lost right after the release', async () => {
    for (let round = 0; round < 10; round += 1) {
      await locks.withLock(
        'k',
        () => {
          proxy.freeze();
        },
        SENT,
      );
      proxy.cut();
      proxy.thaw();
      // The acquire is resent when the connection is back, after the release, which was lost.
      const lock = await locks.acquire('k', { wait: '30s' });
      await lock.release();
    }
    expect(events).toContain('release-pending');
    expect(events).not.toContain('lost');
  });

  it('stop() waits for the reply', async () => {
    await locks.withLock('k', () => undefined, SENT);
    await locks.stop();
    expect(events).toEqual(['released']);
    expect(await redis.admin.keys('*:k')).toEqual([]);
  });
});
