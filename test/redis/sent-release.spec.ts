import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { redisForTests, until } from './seam.js';

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

  it('a call ends without the answer', async () => {
    await locks.withLock('k', () => proxy.holdReplies(), SENT);
    expect(events).toEqual([]);
    proxy.passReplies();
    await until(() => events.includes('released'), 'the answer');
  });

  it('the next acquire of the same process is never busy because of it', async () => {
    for (let round = 0; round < 300; round += 1) {
      await locks.withLock('k', () => undefined, { ...SENT, wait: 0 });
      if (round % 3 === 0) await locks.withLock(['k', 'l'], () => undefined, { ...SENT, wait: 0 });
    }
  });

  it('nor when the connection is lost right after', async () => {
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
      // It asks again when the connection is back, behind the release, which was lost.
      const lock = await locks.acquire('k', { wait: '30s' });
      await lock.release();
    }
    expect(events).toContain('release-pending');
    expect(events).not.toContain('lost');
  });

  it('a stop waits for it', async () => {
    await locks.withLock('k', () => undefined, SENT);
    await locks.stop();
    expect(events).toEqual(['released']);
    expect(await redis.admin.keys('*:k')).toEqual([]);
  });
});
