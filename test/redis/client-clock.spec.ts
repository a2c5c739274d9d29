import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { LockManager } from '../../lib/core/lock-manager.js';
import { silentLogger } from '../../lib/api/logger.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { redisForTests, until } from './seam.js';

/** Shorter than the step of the clock, and renewed after a third of it. */
const LEASE = 9_000;

// redlock counts validity by Date.now(): a step of -60 s makes it report 59.9 s for a key that is gone.
describe.each([-60_000, 60_000])("a step of the client's wall clock by %i ms in the middle of a hold", (step) => {
  const redis = redisForTests();
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('neither ends a hold nor lengthens one', async () => {
    const provider = new RedisLockProvider({ url: redis.server.url });
    const manager = new LockManager({ providers: { redis: provider }, logger: silentLogger, shutdownGrace: 0 });
    await manager.start();
    const renewed = await manager.acquire('renewed', { lease: LEASE });
    const short = await manager.acquire('short', { lease: 300, renew: false });
    const now = Date.now.bind(Date);
    jest.spyOn(Date, 'now').mockImplementation(() => now() + step);
    expect(short.remaining()).toBeLessThanOrEqual(300);
    expect(renewed.isHeld()).toBe(true);
    await until(() => !short.isHeld(), 'its lease is over');
    await until(() => short.signal.aborted, 'the loss is signalled');
    const other = await manager.acquire('short', { wait: '60s' });
    expect(other.fencingToken).toBeGreaterThan(short.fencingToken ?? 0n);
    const left = () => redis.admin.pttl(new KeyLayout('lock').lockOf('renewed'));
    let before = await left();
    const isRenewed = async () => {
      const now = await left();
      const grown = now > before;
      before = now;
      return grown;
    };
    await until(isRenewed, 'the lease is renewed');
    expect(renewed.isHeld()).toBe(true);
    expect(renewed.remaining()).toBeLessThanOrEqual(LEASE);
    expect(await left()).toBeGreaterThan(0);
    expect(await renewed.release()).toBe('released');
    expect(await other.release()).toBe('released');
    await manager.stop();
  });
});
