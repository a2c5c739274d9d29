import { LockManager } from '../../lib/core/lock-manager.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import { redisForTests, RELEASE, request, twoProcesses, until, untilAnswered } from './seam.js';

describe('an outage of Redis', () => {
  const redis = redisForTests();
  const processes = twoProcesses(redis);

  it('says of an ask that was never sent that nothing of it is left, and of one without an answer that it may be', async () => {
    const { shaky, proxy } = processes;
    proxy.holdReplies();
    const unanswered = shaky.backend.acquire(request('k')).catch((error: unknown) => error);
    await until(async () => (await redis.admin.keys('*:k')).length === 1, 'the server has executed it');
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

  it('says of an ask that was answered by nobody and then was not sent again that something may be left', async () => {
    const { shaky, proxy } = processes;
    proxy.holdReplies();
    const attempt = request('k');
    const unanswered = shaky.backend.acquire(attempt).catch((error: unknown) => error);
    await until(async () => (await redis.admin.keys('*:k')).length === 1, 'the server has executed it');
    proxy.refuse();
    await unanswered;
    await expect(shaky.backend.acquire(attempt)).rejects.toThrow(LockUnavailableError);
    expect(await shaky.backend.release(attempt, RELEASE)).toBe('unknown');
    proxy.passReplies();
    proxy.admit();
    // The core repeats it until it is answered.
    expect(await untilAnswered(() => shaky.backend.release(attempt, RELEASE))).toBe('released');
    expect(await redis.admin.keys('*:k')).toEqual([]);
  });

  it('leaves nothing to do for attempts that were never sent', async () => {
    const clock = new FakeClock();
    const provider = new RedisLockProvider({ url: 'redis://127.0.0.1:1' });
    const locks = new LockManager({ providers: { redis: provider }, clock, failFast: false });
    await locks.start();
    const timers = clock.pendingTimers;
    // Those that wait ask again and again, and none of it is sent.
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

  it('costs one timer for all attempts without an answer, which are released when Redis is back', async () => {
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
    await until(async () => (await redis.admin.keys('*many:*')).length === 200, 'the server has executed all');
    proxy.refuse();
    for (let step = 0; step < 30; step += 1) {
      await clock.advance(100);
      await locks.admin.inspect('nothing').catch(() => undefined);
    }
    await attempts;
    // That of the pending releases, and those of connections that are tried again.
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

  it('leaves nothing locked that was asked for before it and executed at its end, however long it lasted', async () => {
    const clock = new FakeClock();
    const locks = new LockManager({ providers: { redis: new RedisLockProvider({ url: redis.server.url }) }, clock });
    await locks.start();
    // The server knows the script from here on.
    await (await locks.acquire('warm')).release();
    const [LEASE, WAIT] = [60_000, 200_000];
    redis.server.signal('SIGSTOP');
    const asked = locks.acquire('k', { lease: LEASE, wait: WAIT }).catch((error: unknown) => error);
    // The connection on which it was sent is given up, and nothing can be sent when its caller leaves.
    for (let time = 0; time < WAIT + 2 * LEASE; time += 1_000) {
      await clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await asked).toBeInstanceOf(LockUnavailableError);
    redis.server.signal('SIGCONT');
    await until(async () => {
      await clock.advance(100);
      return (await locks.admin.inspect('nothing').catch(() => undefined)) === null;
    }, 'it is connected again');
    await until(async () => {
      await clock.advance(100);
      return (await redis.admin.keys('*:k')).length === 0;
    }, 'what the server has executed late is released');
    const stopped = locks.stop();
    for (let step = 0; step < 30; step += 1) await clock.advance(100);
    await stopped;
  });

  it('is reported once, however many ask, renew and leave while Redis is frozen and when it goes on', async () => {
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
    const until = async (isSo: () => boolean) => {
      while (!isSo()) await new Promise((resolve) => setTimeout(resolve, 10));
    };
    await until(() => state.served > 200);
    redis.server.signal('SIGSTOP');
    await until(() => reported.length > 0 && state.refused > 500);
    redis.server.signal('SIGCONT');
    const before = state.served;
    await until(() => state.served > before + 500);
    state.isOver = true;
    await Promise.all(callers);
    expect(reported).toHaveLength(1);
    await locks.stop();
  }, 60_000);
});
