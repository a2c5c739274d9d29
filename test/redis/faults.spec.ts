import { expect, jest } from '@jest/globals';
import { inspect } from 'node:util';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedisRequests } from '../../lib/providers/redis/redis-requests.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { makeServerClock, NO_COMPILER } from '../servers/server-clock.js';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import {
  ask,
  expire,
  granted,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  startWithFakeClock,
  until,
  untilWaiting,
  redisForTests,
  twoProcesses,
  waitersAre,
} from './seam.js';
import { describeUnless } from '../unless.js';

describe.each([IOREDIS, NODE_REDIS])('faults between a process and Redis, with %s', (library) => {
  const redis = redisForTests();
  const processes = twoProcesses(redis, library);

  const up = async ({ backend }: StartedBackend) => {
    await until(async () => (await backend.inspect('nothing').catch(() => 'down')) === null, 'the connection is back');
  };

  it('a retry finds its own lock if the reply to the first request was lost', async () => {
    const ask = request('k');
    processes.proxy.loseReplies();
    const lost = processes.shaky.backend.acquire(ask);
    await until(async () => (await processes.steady.backend.inspect('k')) !== null, 'the request was executed');
    processes.proxy.passReplies();
    processes.proxy.cut();
    await expect(lost).rejects.toThrow(LockUnavailableError);
    expect(processes.shaky.events).toContainEqual(expect.objectContaining({ type: 'unavailable' }));
    await up(processes.shaky);
    expect(processes.shaky.events).toContainEqual({ type: 'recovered' });
    const token = (await processes.steady.backend.inspect('k'))?.fencingToken;
    const grant = granted(await processes.shaky.backend.acquire(ask));
    expect(grant.fencingToken).toBe(token);
    expect(await processes.shaky.backend.release(grant, RELEASE)).toBe('released');
  });

  it('a reply that arrives after the lease is discarded', async () => {
    const late = await startWithFakeClock(library.server(`redis://127.0.0.1:${processes.proxy.port}`));
    const ask = request('k', { lease: 5_000 });
    processes.proxy.holdReplies();
    const answer = late.backend.acquire(ask);
    await until(async () => (await processes.steady.backend.inspect('k')) !== null, 'the request was executed');
    await expire(redis.admin, 'k');
    late.time.block(5_000);
    const other = granted(await processes.steady.backend.acquire(request('k')));
    processes.proxy.passReplies();
    await untilWaiting(late);
    await processes.steady.backend.release(other, RELEASE);
    const grant = granted(await answer);
    expect(grant.fencingToken).toBeGreaterThan(other.fencingToken ?? 0n);
    expect(grant.validUntil).toBeGreaterThan(late.time.now());
    await late.backend.close();
  });

  // Before and after the connection is given up.
  describe.each([300, 4_500])(
    'a caller whose wait ends while the server is silent (commandTimeout %d)',
    (commandTimeout) => {
      let locks: LockManager;

      beforeEach(async () => {
        const url = `redis://127.0.0.1:${processes.proxy.port}`;
        locks = new LockManager({ providers: { redis: new RedisLockProvider({ url, commandTimeout }) } });
        await locks.start();
      });
      afterEach(async () => {
        jest.restoreAllMocks();
        processes.proxy.passReplies();
        await locks.stop();
      });
      const heldBySteady = async (key: string) =>
        granted(await processes.steady.backend.acquire(request(key, { lease: 60_000 })));
      const queued = async (key: string, options: LockOptions) => {
        const asked = locks.acquire(key, { wait: 3_000, ...options }).catch((error: unknown) => error);
        await waitersAre(processes.steady.backend, key, 1);
        return { asked };
      };

      it('gets "unavailable", not "busy", if the server has been silent since it was queued', async () => {
        const kinds: readonly LockOptions[] = [{}, { mode: 'shared' }, { minHold: 1_000 }, { limit: 1 }];
        const waiting: { asked: Promise<unknown> }[] = [];
        for (const [index, options] of kinds.entries()) {
          await heldBySteady(`k${index}`);
          waiting.push(await queued(`k${index}`, options));
        }
        processes.proxy.holdReplies();
        for (const { asked } of waiting) expect(await asked).toBeInstanceOf(LockUnavailableError);
      });

      it('gets "unavailable", not "busy", if the server has been silent since it handed off a lock with minHold', async () => {
        const held = await heldBySteady('k');
        const { asked } = await queued('k', { minHold: 1_000 });
        const { onNotice } = RedisRequests.prototype;
        jest.spyOn(RedisRequests.prototype, 'onNotice').mockImplementation(function (this: RedisRequests, ...notice) {
          processes.proxy.holdReplies();
          onNotice.apply(this, notice);
        });
        await processes.steady.backend.release(held, RELEASE);
        expect(await asked).toBeInstanceOf(LockUnavailableError);
      });
    },
  );

  it('a command of a lost connection does not leave a lock held for an attempt that has ended', async () => {
    const ask = request('k');
    const { backend } = await startBackend({ ...library.server(redis.server.url), commandTimeout: 300 });
    redis.server.signal('SIGSTOP');
    // The request reaches the server's socket, but the server does not read it.
    await expect(backend.acquire(ask)).rejects.toThrow(LockUnavailableError);
    const released = (async () => {
      for (;;) {
        const outcome = await backend.release(ask, RELEASE);
        if (outcome !== 'unknown') return outcome;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    })();
    redis.server.signal('SIGCONT');
    await released;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await processes.steady.backend.inspect('k')).toBeNull();
    await backend.close();
  });

  it('waiters keep their place across a reconnect', async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const first = ask(processes.shaky.backend, request('k'));
    await waitersAre(processes.steady.backend, 'k', 1);
    const second = processes.steady.backend.acquire(request('k'));
    await waitersAre(processes.steady.backend, 'k', 2);
    await untilWaiting(processes.shaky);
    processes.proxy.cut();
    await up(processes.shaky);
    await untilWaiting(processes.shaky, 2);
    // The server passes over a process that does not listen yet.
    await until(async () => (await redis.admin.pubsub('CHANNELS')).length === 2, 'both processes listen');
    await processes.steady.backend.release(holder, RELEASE);
    const grant = granted(await first);
    await processes.shaky.backend.release(grant, RELEASE);
    expect(granted(await second).fencingToken).toBeGreaterThan(grant.fencingToken ?? 0n);
  });

  it('a waiter that leaves while the connection is down gets an unknown outcome', async () => {
    granted(await processes.steady.backend.acquire(request('k')));
    const ask = request('k');
    const answer = processes.shaky.backend.acquire(ask);
    await waitersAre(processes.steady.backend, 'k', 1);
    await untilWaiting(processes.shaky);
    processes.proxy.refuse();
    await until(
      () => processes.shaky.events.some(({ type }) => type === 'unavailable'),
      'the provider has noticed the outage',
    );
    ask.abort();
    await expect(answer).rejects.toThrow(LockUnavailableError);
    processes.proxy.admit();
    await waitersAre(processes.steady.backend, 'k', 0);
  });

  it("FLUSHALL is detected by the holder, and each process's waiters are served in the same order", async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const order: number[] = [];
    const waiters = [processes.shaky, processes.steady, processes.shaky].map(async ({ backend }, index) => {
      await waitersAre(processes.steady.backend, 'k', index);
      const grant = granted(await backend.acquire(request('k')));
      order.push(index);
      await backend.release(grant, RELEASE);
      return grant;
    });
    await waitersAre(processes.steady.backend, 'k', 3);
    const other = granted(await processes.steady.backend.acquire(request('other')));
    await redis.admin.flushall();
    expect(await processes.steady.backend.renew(holder, 30_000)).toBe('lost');
    const grants = await Promise.all(waiters);
    // Each process restores its own order; which process polls first is random.
    expect(order.filter((index) => index !== 1)).toEqual([0, 2]);
    for (const grant of grants) expect(grant.fencingToken).toBeGreaterThan(holder.fencingToken ?? 0n);
    const again = granted(await processes.steady.backend.acquire(request('other')));
    expect(again.fencingToken).toBeGreaterThan(other.fencingToken ?? 0n);
  });

  it('renewals, releases and handoffs work when memory is full', async () => {
    const grant = granted(await processes.steady.backend.acquire(request('k')));
    const held = granted(await processes.steady.backend.acquire(request('other')));
    const waiter = processes.shaky.backend.acquire(request('k'));
    await waitersAre(processes.steady.backend, 'k', 1);
    await redis.admin.config('SET', 'maxmemory', '1');
    try {
      const refused = request('new');
      const error: unknown = await processes.steady.backend.acquire(refused).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(LockUnavailableError);
      expect(String(error)).toMatch(/Redis refuses it \(OOM/);
      expect(inspect(error, { depth: 10 })).not.toContain(refused.id);
      const renewed = processes.steady.backend.renew(held, 60_000);
      expect(await processes.steady.backend.release(grant, RELEASE)).toBe('released');
      expect(await renewed).toMatchObject({});
      const next = granted(await waiter);
      expect(await processes.shaky.backend.renew(next, 30_000)).toMatchObject({});
      expect(await processes.shaky.backend.release(next, RELEASE)).toBe('released');
    } finally {
      await redis.admin.config('SET', 'maxmemory', '0');
    }
  });

  it('an evicted lock is detected, and the next token is larger', async () => {
    const grant = granted(await processes.steady.backend.acquire(request('k')));
    await redis.admin.config('SET', 'maxmemory-policy', 'allkeys-random');
    await redis.admin.config('SET', 'maxmemory', '1');
    try {
      // Any write that needs memory now evicts everything.
      await redis.admin.set('x', 'y').catch(() => undefined);
      expect(await redis.admin.dbsize()).toBe(0);
    } finally {
      await redis.admin.config('SET', 'maxmemory', '0');
      await redis.admin.config('SET', 'maxmemory-policy', 'noeviction');
    }
    const next = granted(await processes.shaky.backend.acquire(request('k')));
    expect(await processes.steady.backend.renew(grant, 30_000)).toBe('lost');
    expect(next.fencingToken).toBeGreaterThan(grant.fencingToken ?? 0n);
  });
});

describe.each([IOREDIS, NODE_REDIS])('a Redis restart while a lock is held, with %s', (library) => {
  it.each([
    ['without persistence: the lock is lost, and tokens keep growing', [], 'lost'],
    ['with AOF: the lock stays held', ['--appendonly', 'yes', '--appendfsync', 'always'], 'held'],
  ])('%s', async (_, args, outcome) => {
    const server = await startRedisServer({ args });
    const { backend, events } = await startBackend(library.server(server.url));
    try {
      const grant = granted(await backend.acquire(request('k')));
      await server.crash();
      await until(() => events.some(({ type }) => type === 'recovered'), 'the connection is back');
      const renewed = await backend.renew(grant, 30_000);
      if (outcome === 'held') expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
      else {
        expect(renewed).toBe('lost');
        expect(granted(await backend.acquire(request('k'))).fencingToken).toBeGreaterThan(grant.fencingToken ?? 0n);
      }
    } finally {
      await backend.close();
      await server.stop();
    }
  });
});

const clock = makeServerClock();

describeUnless(clock ? undefined : NO_COMPILER)("a step of Redis's wall clock", () => {
  afterAll(() => clock?.remove());

  it('backward: tokens still grow, and the queue still moves; forward: the lock is lost, and a renewal reports it', async () => {
    const server = await startRedisServer({ env: clock?.env ?? {} });
    const { backend } = await startBackend({ url: server.url });
    try {
      const first = granted(await backend.acquire(request('k')));
      const waiter = backend.acquire(request('k'));
      await waitersAre(backend, 'k', 1);
      clock?.step(-3_600_000);
      expect(await backend.release(first, RELEASE)).toBe('released');
      const second = granted(await waiter);
      expect(second.fencingToken).toBeGreaterThan(first.fencingToken ?? 0n);
      expect(await backend.renew(second, 30_000)).toMatchObject({});
      clock?.step(0);
      await until(async () => (await backend.renew(second, 30_000)) === 'lost', 'the lock is lost');
      expect(granted(await backend.acquire(request('k'))).fencingToken).toBeGreaterThan(second.fencingToken ?? 0n);
    } finally {
      await backend.close();
      await server.stop();
    }
  });
});
