import { jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { LockManager } from '../../lib/core/lock-manager.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import {
  isBusyReply,
  readFreeIn,
  readHeld,
  readHolder,
  readNotice,
  readQueued,
} from '../../lib/providers/redis/wire.js';
import { isAnswer, readShownVote, readVote } from '../../lib/providers/redlock/lock-script.js';
import { granted, redisForTests, request, startBackend } from './seam.js';

const HOLDER = 'a'.repeat(32);
const REPLIES = [
  '1700000000000000',
  'h170000000000000030000',
  'q170000000000000030000 0123456789ab 12',
  'b +2',
  `170000000000000017000000000000000130000:${HOLDER} lock:{0}:k`,
  `k100:${HOLDER}`,
  `+170000000000000017000000000000013000`,
  `${HOLDER}17000000000000003000`,
];

describe('a reply that has changed on its way', () => {
  it.each(REPLIES)('is read as what it is, or as no answer, and never thrown: %s', (reply) => {
    const random = new SeededRandom(reply.length);
    for (let round = 0; round < 500; round += 1) {
      const at = Math.floor(random.fraction() * reply.length);
      const changed =
        reply.slice(0, at) + String.fromCharCode(Math.floor(random.fraction() * 256)) + reply.slice(at + 1);
      const held = readHeld(changed, 30_000);
      const queued = readQueued(changed);
      for (const each of [held?.left, queued?.freeIn, queued?.serverTime]) expect(each).not.toBeNaN();
      readHolder(changed);
      readNotice(changed);
      readFreeIn(changed);
      expect([true, false]).toContain(isBusyReply(changed));
      if (isAnswer(changed)) {
        readVote(changed);
        readShownVote(changed);
      }
    }
  });

  describe('on a server', () => {
    const redis = redisForTests();
    afterEach(() => {
      jest.restoreAllMocks();
    });

    it('fails its own operation and no other: all eight callers of its call have their lock', async () => {
      const locks = new LockManager({ providers: { redis: new RedisLockProvider({ url: redis.server.url }) } });
      await locks.start();
      await locks.withLock('warm-up', () => undefined);
      let changed = 0;
      const { sendCommand } = Redis.prototype;
      jest.spyOn(Redis.prototype, 'sendCommand').mockImplementation(async function (this: Redis, ...sent) {
        const reply: unknown = await sendCommand.apply(this, sent);
        if (!Array.isArray(reply) || reply.length < 8 || changed > 0) return reply;
        changed += 1;
        return [String(reply[0]).replace(/\d$/, 'x'), ...(reply as unknown[]).slice(1)];
      });
      const keys = Array.from({ length: 8 }, (_, index) => `k${index}`);
      const ran = keys.map((key) => locks.withLock(key, () => key, { wait: 10_000 }));
      expect(await Promise.all(ran)).toEqual(keys);
      expect(changed).toBe(1);
      await locks.stop();
    });

    it('the name of an instance that others have written is not shown: the id is', async () => {
      const { backend } = await startBackend({ url: redis.server.url });
      await backend.register();
      granted(await backend.acquire(request('k')));
      const info = await backend.inspect('k');
      const [id = ''] = info?.instances ?? [];
      for (const evil of ['x\u001b[31m', 'L'.repeat(200_000), '\u202egnp.exe']) {
        await redis.admin.set(new KeyLayout('lock').textOf('instance', id), evil);
        expect((await backend.inspect('k'))?.instances).toEqual([id]);
      }
      await redis.admin.set(new KeyLayout('lock').textOf('instance', id), 'shop-1');
      expect((await backend.inspect('k'))?.instances).toEqual(['shop-1']);
    });
  });
});
