import { expect } from '@jest/globals';
import {
  granted,
  redisForTests,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  startWithFakeClock,
  until,
  untilExpired,
} from './seam.js';

describe('RedisLockProvider at the seam', () => {
  const redis = redisForTests();
  let one: StartedBackend;

  beforeEach(async () => {
    one = await startBackend({ url: redis.server.url });
  });
  afterEach(async () => {
    await one.backend.close();
  });

  it('grants a free lock with a token and a deadline inside the lease', async () => {
    const before = performance.now();
    const grant = granted(await one.backend.acquire(request('stock')));
    expect(grant.fencingToken).toBeGreaterThan(1_600_000_000_000_000n);
    expect(grant.validUntil).toBeLessThanOrEqual(performance.now() + 30_000 * 0.99 - 2);
    expect(grant.validUntil).toBeGreaterThan(before + 29_000);
    expect(grant.lease).toBe(30_000);
  });

  it('is busy for a second caller that does not wait', async () => {
    granted(await one.backend.acquire(request('stock')));
    expect(await one.backend.acquire(request('stock', { wait: 0 }))).toBe('busy');
  });

  it('answers a repeated ask with the same hold and the same token', async () => {
    const ask = request('stock', { wait: 0 });
    const begun = performance.now();
    const first = granted(await one.backend.acquire(ask));
    const roundTrip = performance.now() - begun;
    const second = granted(await one.backend.acquire(ask));
    expect(second.fencingToken).toBe(first.fencingToken);
    // The lease began at the server some time in the first round trip; the server counts in whole ms.
    expect(second.validUntil).toBeLessThanOrEqual(first.validUntil + roundTrip + 1);
  });

  it('renews what is held, and does not bring back what was released', async () => {
    const grant = granted(await one.backend.acquire(request('stock', { lease: 30_000 })));
    const renewed = await one.backend.renew(grant, 600_000);
    expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
    expect((await one.backend.inspect('stock'))?.expiresIn).toBeGreaterThan(500_000);
    expect(await one.backend.release(grant, RELEASE)).toBe('released');
    expect(await one.backend.renew(grant, 60_000)).toBe('lost');
    expect(await one.backend.inspect('stock')).toBeNull();
  });

  it('releases once; the second release is lost, and so is one of somebody else', async () => {
    const grant = granted(await one.backend.acquire(request('stock')));
    expect(await one.backend.release(request('stock'), RELEASE)).toBe('lost');
    expect(await one.backend.release(grant, RELEASE)).toBe('released');
    expect(await one.backend.release(grant, RELEASE)).toBe('lost');
  });

  it('gives larger tokens to later holders', async () => {
    let last = 0n;
    for (let round = 0; round < 50; round += 1) {
      const grant = granted(await one.backend.acquire(request('stock')));
      expect(grant.fencingToken).toBeGreaterThan(last);
      last = grant.fencingToken ?? 0n;
      await one.backend.release(grant, RELEASE);
    }
  });

  it('lets a waiter in when the lease of a crashed holder is over', async () => {
    granted(await one.backend.acquire(request('stock', { lease: 300 })));
    const { backend, time } = await startWithFakeClock({ url: redis.server.url });
    const waiter = backend.acquire(request('stock'));
    await untilExpired(redis.admin, 'stock');
    // It asks again once a second.
    await time.advance(1_000);
    granted(await waiter);
    await backend.close();
  });

  it('hands off to the next waiter, first come first served', async () => {
    const first = granted(await one.backend.acquire(request('stock')));
    const begun = performance.now();
    const order: number[] = [];
    const waiters = Array.from({ length: 20 }, async (_, index) => {
      const grant = granted(await one.backend.acquire(request('stock', { since: begun - 2_000 + 100 * index })));
      order.push(index);
      await one.backend.release(grant, RELEASE);
    });
    await until(() => one.events.filter(({ type }) => type === 'waiting').length === 20, 'all wait');
    await one.backend.release(first, RELEASE);
    await Promise.all(waiters);
    expect(order).toEqual(Array.from({ length: 20 }, (_, index) => index));
    expect(await redis.admin.keys('*')).toHaveLength(2); // the counter, and for 10 s when this process was seen
  });
});
