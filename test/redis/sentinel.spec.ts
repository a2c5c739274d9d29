import { expect, jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type RedisSentinels, startRedisSentinels } from '../servers/redis-sentinels.js';
import type { RedisServer } from '../servers/redis-server.mjs';
import { IOREDIS, NODE_REDIS, NODE_REDIS_5 } from './client-libraries.js';
import { ScriptedSentinel } from './scripted-sentinel.js';
import {
  granted,
  redisForTests,
  RELEASE,
  request,
  startBackend,
  type StartedBackend,
  until,
  untilAnswered,
  untilWaiting,
} from './seam.js';

/**
 * Covers the 1 s until a Sentinel considers the master down, the votes, and our own reconnects. Sentinels that stood
 * still for 2 s do nothing for the next 30 s (their TILT mode), so it is longer than that.
 */
const SECONDS = 45_000;

// Longer than a failover takes.
const LONG = { lease: 600_000 };

// The tests run in order on the same servers: the second one starts with the master that the first one promoted.
describe.each([IOREDIS, NODE_REDIS])('Sentinel failover while a lock is held, with %s', (library) => {
  let redis: RedisSentinels;
  let one: StartedBackend;
  let two: StartedBackend;

  beforeAll(async () => {
    redis = await startRedisSentinels();
    const options = { ...library.sentinel(redis.options), commandTimeout: '4s', waitReplicas: 1 };
    one = await startBackend(options);
    two = await startBackend(options);
  }, 60_000);
  afterAll(async () => {
    await one.backend.close();
    await two.backend.close();
    await redis.stop();
  });

  const servers = () => [redis.master, ...redis.replicas];
  const roleOf = async ({ port }: RedisServer) => {
    const client = new Redis({ port, retryStrategy: () => null, commandTimeout: 2_000 });
    client.on('error', () => undefined);
    const [role] = (await client.role().catch(() => ['down'])) as [string];
    client.disconnect();
    return role;
  };
  const masterApartFrom = async (old: RedisServer): Promise<RedisServer> => {
    let master: RedisServer | undefined;
    await until(
      async () => {
        const others = servers().filter((server) => server !== old);
        const roles = await Promise.all(others.map(roleOf));
        master = others[roles.indexOf('master')];
        return master !== undefined;
      },
      'another server is the master',
      SECONDS,
    );
    return master as RedisServer;
  };

  it('a hung Sentinel is passed over', async () => {
    redis.sentinels[0]?.signal('SIGSTOP');
    const { backend } = await startBackend(library.sentinel(redis.options));
    granted(await backend.acquire(request('start')));
    await backend.close();
    redis.sentinels[0]?.signal('SIGCONT');
  }, 60_000);

  it('when the master hangs, the lock and the queue continue on the new master, and the old one grants nothing on waking up', async () => {
    const held = granted(await one.backend.acquire(request('k', LONG)));
    // Retries with the same id, as the core does: a Sentinel that announces the failover late breaks the connection to
    // the new master again.
    const wish = request('k', { wait: 600_000 });
    const waiter = untilAnswered(() => two.backend.acquire(wish), 2 * SECONDS);
    await untilWaiting(two);
    redis.master.signal('SIGSTOP');
    const begun = performance.now();
    const renewed = await untilAnswered(() => one.backend.renew(held, LONG.lease), SECONDS);
    console.info(`Master hung: the lock was renewed after ${Math.round(performance.now() - begun)} ms.`);
    expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
    const master = await masterApartFrom(redis.master);
    await untilAnswered(() => one.backend.release(held, RELEASE), SECONDS);
    const next = granted(await waiter);
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);

    await two.backend.release(next, RELEASE);

    redis.master.signal('SIGCONT');
    const admin = new Redis({ port: master.port });
    const layout = new KeyLayout('lock');
    let grants = 0;
    let asks = 0;
    // The old master considers itself the master for about 8 s more, until the Sentinels demote it. On a busy machine
    // that may already be over.
    while (grants < 20 && (await roleOf(redis.master)) === 'master') {
      for (const { backend } of [one, two]) {
        // A Sentinel that announces the failover late makes a provider look up the master again, and be unavailable for
        // a moment.
        const answer = await backend.acquire(request(`k${(asks += 1)}`)).catch(() => undefined);
        if (answer === undefined) continue;
        expect(await admin.get(layout.lockOf(`k${asks}`))).toContain(granted(answer).holder);
        if ((await roleOf(redis.master)) === 'master') grants += 1;
      }
    }
    if (grants === 0) console.warn('The old master was demoted before a lock was requested next to it.');
    admin.disconnect();
  }, 240_000);

  it('when the master is killed, the new master knows the lock, and grants it to no other process', async () => {
    const before = await masterApartFrom(redis.master);
    // Retries one request: a new one would wait for what the first may have left behind.
    const ask = request('killed', LONG);
    const held = granted(await untilAnswered(() => one.backend.acquire(ask), SECONDS));
    // One replica has the lock. The old master may not replicate yet, and could be promoted too.
    const admin = new Redis({ port: before.port });
    await until(async () => (await admin.wait(2, 1_000)) === 2, 'both replicas have the lock', SECONDS);
    admin.disconnect();
    before.signal('SIGKILL');
    const begun = performance.now();
    const renewed = await untilAnswered(() => one.backend.renew(held, LONG.lease), SECONDS);
    console.info(`Master killed: the lock was renewed after ${Math.round(performance.now() - begun)} ms.`);
    expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
    const other = await untilAnswered(() => two.backend.acquire(request('killed', { wait: 0 })), SECONDS);
    expect(other).toBe('busy');
    expect(await untilAnswered(() => one.backend.release(held, RELEASE), SECONDS)).toBe('released');
  }, 240_000);

  // node-redis never prints.
  if (library !== IOREDIS) return;

  it('a dead Sentinel makes ioredis print nothing, however many times it is called', async () => {
    const dead = redis.sentinels[0] as RedisServer;
    const emitted = jest.spyOn(Redis.prototype, 'silentEmit' as never) as unknown as jest.Mock;
    dead.signal('SIGKILL');
    // Collects whether a listener handled each error. ioredis prints unhandled ones, but not under Jest, where Node's
    // errors are from another realm.
    const failures = () =>
      emitted.mock.contexts.flatMap((client, call) => {
        const isFailure = (client as Redis).options.port === dead.port && emitted.mock.calls[call]?.[0] === 'error';
        return isFailure ? [emitted.mock.results[call]?.value] : [];
      });
    await until(() => failures().length >= 10, 'the dead Sentinel was called', SECONDS);

    expect(failures()).not.toContain(false);
    emitted.mockRestore();
  }, 60_000);
});

describe.each([IOREDIS, NODE_REDIS, NODE_REDIS_5])(
  'a Sentinel that announces a failover while it is queried for the master, with %s',
  (library) => {
    const redis = redisForTests();
    let sentinel: ScriptedSentinel;
    beforeAll(async () => {
      sentinel = await ScriptedSentinel.start(redis.server.port);
    });
    afterAll(() => sentinel.stop());

    it('does not end the connections: locks are granted again once it has answered', async () => {
      const { backend, events } = await startBackend({
        ...library.sentinel({ sentinels: [{ host: '127.0.0.1', port: sentinel.port }], name: 'locks' }),
        commandTimeout: '10s',
      });
      const held = granted(await backend.acquire(request('k')));
      await until(() => sentinel.listening === 2, 'both connections listen to the Sentinel');

      sentinel.beSilent();
      await redis.admin.call('CLIENT', ['KILL', 'TYPE', 'normal', 'SKIPME', 'yes']);
      await redis.admin.call('CLIENT', ['KILL', 'TYPE', 'pubsub']);
      await until(() => sentinel.asking === 2, 'both connections look up the master');
      sentinel.tellOfFailover();
      await until(() => sentinel.listening === 0, 'both connections know about the failover');
      sentinel.speak();

      expect(await untilAnswered(() => backend.renew(held, 30_000))).toMatchObject({ validUntil: expect.any(Number) });
      expect(events.map(({ type }) => type)).toEqual(['unavailable', 'recovered']);
      await until(
        async () => (await redis.admin.pubsub('CHANNELS')).length === 1,
        'the process listens for grants again',
      );
      expect(await backend.release(held, RELEASE)).toBe('released');
      await backend.close();
    });
  },
);
