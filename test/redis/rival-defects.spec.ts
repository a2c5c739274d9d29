import { type Clock } from '../../lib/api/clock.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { silentLogger } from '../../lib/api/logger.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { until, redisForTests } from './seam.js';

// Each defect occurred in the named package, in its version of 2026, and must not occur here.
describe('defects of other packages for locks on one Redis', () => {
  const redis = redisForTests();
  let proxy: TcpProxy;
  let one: LockManager;
  let two: LockManager;
  const managers: LockManager[] = [];

  const start = async (url: string, clock: Clock = systemClock) => {
    // Replies arrive in real time, so a short timeout would pass while a test advances its clock.
    const provider = new RedisLockProvider({ url, commandTimeout: '1h' });
    const manager = new LockManager({ providers: { redis: provider }, logger: silentLogger, shutdownGrace: 0, clock });
    await manager.start();
    managers.push(manager);
    return manager;
  };
  beforeEach(async () => {
    proxy = await startTcpProxy(redis.server.port);
    one = await start(redis.server.url);
    two = await start(`redis://127.0.0.1:${proxy.port}`);
  });
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
    await proxy.close();
  });

  const calls = async () =>
    [...(await redis.admin.info('commandstats')).matchAll(/cmdstat_(?:eval|evalsha|ping):calls=(\d+)/g)].reduce(
      (sum, [, count]) => sum + Number(count),
      0,
    );

  it('redis-semaphore: during an outage, every renewal is an unhandled rejection, and the lock counts as held forever', async () => {
    const rejections: unknown[] = [];
    const onRejection = (reason: unknown) => rejections.push(reason);
    process.on('unhandledRejection', onRejection);
    const lock = await two.acquire('k', { lease: 600 });
    proxy.refuse();
    await until(() => lock.signal.aborted, 'the loss is signalled');
    expect(lock.isHeld()).toBe(false);
    expect(rejections).toEqual([]);
    process.off('unhandledRejection', onRejection);
    await lock.release();
  });

  it('redlock-universal: a short lease is renewed 15 000 times a second, and each first acquire is preceded by a PING', async () => {
    const time = new FakeClock();
    const three = await start(redis.server.url, time);
    await three.admin.inspect('k');
    await redis.admin.config('RESETSTAT');
    const lock = await three.acquire('k', { lease: '30s' });
    expect(await calls()).toBe(1);
    const seconds = 60;
    for (let second = 0; second < seconds; second += 1) {
      await time.advance(1_000);
      // On the same connection: once this is answered, so is a renewal.
      await three.admin.inspect('k');
    }
    expect(lock.isHeld()).toBe(true);
    // The acquire, the inspections, and a renewal in each third of the lease.
    expect(await calls()).toBe(1 + seconds + 6);
    await lock.release();
  });

  it('simple-redis-mutex: 16 waiters cost 19 commands per acquisition, and one of them starves', async () => {
    await one.admin.inspect('k');
    await redis.admin.config('RESETSTAT');
    const turns: number[] = [];
    const rounds = 4;
    const begun = performance.now();
    await Promise.all(
      Array.from({ length: 16 }, async (_, index) => {
        for (let round = 0; round < rounds; round += 1) {
          await (index % 2 === 0 ? one : two).withLock('k', () => turns.push(index));
        }
      }),
    );
    // Each of the two processes polls once a second for its waiters.
    const repeated = 2 * Math.ceil((performance.now() - begun) / 1_000);
    expect(await calls()).toBeLessThan(3 * 16 * rounds + repeated);
    // Between two turns of one caller, all others have had theirs, except those that arrived meanwhile.
    const last = new Map<number, number>();
    turns.forEach((index, turn) => {
      expect(turn - (last.get(index) ?? turn)).toBeLessThanOrEqual(2 * 16);
      last.set(index, turn);
    });
  });
});
