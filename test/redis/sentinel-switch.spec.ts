import { expect } from '@jest/globals';
import { ScriptedSentinel } from './scripted-sentinel.js';
import { IOREDIS, NODE_REDIS, NODE_REDIS_5 } from './client-libraries.js';
import { granted, redisForTests, RELEASE, request, startBackend, until, untilAnswered } from './seam.js';

describe.each([IOREDIS, NODE_REDIS, NODE_REDIS_5])(
  'a Sentinel that tells of a failover while it is asked where the master is, by %s',
  (library) => {
    const redis = redisForTests();
    let sentinel: ScriptedSentinel;
    beforeAll(async () => {
      sentinel = await ScriptedSentinel.start(redis.server.port);
    });
    afterAll(() => sentinel.stop());

    it('does not end the connections: locks are granted again when it has answered', async () => {
      const { backend, events } = await startBackend({
        ...library.sentinel({ sentinels: [{ host: '127.0.0.1', port: sentinel.port }], name: 'locks' }),
        commandTimeout: '10s',
      });
      const held = granted(await backend.acquire(request('k')));
      await until(() => sentinel.listening === 2, 'both connections listen to the Sentinel');

      sentinel.beSilent();
      await redis.admin.call('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes']);
      await redis.admin.call('CLIENT', ['KILL', 'TYPE', 'pubsub']);
      await until(() => sentinel.asking === 2, 'both connections ask for the master');
      sentinel.tellOfFailover();
      await until(() => sentinel.listening === 0, 'both know of it');
      sentinel.speak();

      expect(await untilAnswered(() => backend.renew(held, 30_000))).toMatchObject({ validUntil: expect.any(Number) });
      expect(events.map(({ type }) => type)).toEqual(['unavailable', 'recovered']);
      await until(async () => (await redis.admin.pubsub('CHANNELS')).length === 1, 'it can be told of grants again');
      expect(await backend.release(held, RELEASE)).toBe('released');
      await backend.close();
    });
  },
);
