import { expect } from '@jest/globals';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import {
  ask,
  granted,
  leave,
  redisForTests,
  RELEASE,
  request,
  startWithFakeClock,
  twoProcesses,
  until,
  untilWaiting,
  serverTime,
  waitersAre,
} from './seam.js';

// To Redis, each provider is a separate process.
describe('the handoff between two processes', () => {
  const redis = redisForTests();
  const processes = twoProcesses(redis);

  /** Returns how many times the script was called since RESETSTAT. */
  const calls = async () =>
    Number(/cmdstat_evalsha:calls=(\d+)/.exec(await redis.admin.info('commandstats'))?.[1] ?? 0);
  // Far longer than a provisional lease of 3 s, even on a slow machine.
  const LONG = { lease: 600_000 };
  const NEARLY_LONG = 500_000;

  it('wakes the next waiter through the release, without another command', async () => {
    // The receiver's clock stands still, so it never polls: only the release's message can wake it.
    const receiver = await startWithFakeClock({ url: redis.server.url });
    for (let round = 1; round <= 15; round += 1) {
      const holder = granted(await processes.steady.backend.acquire(request('k')));
      const waiter = receiver.backend.acquire(request('k'));
      await untilWaiting(receiver, round);
      await redis.admin.config('RESETSTAT');
      await processes.steady.backend.release(holder, RELEASE);
      const grant = granted(await waiter);
      expect(await calls()).toBe(1);
      await receiver.backend.release(grant, RELEASE);
    }
    await receiver.backend.close();
  });

  it('gives the waiter a deadline within its provisional lease, which a renewal extends to the whole lease', async () => {
    const receiver = await startWithFakeClock({ url: redis.server.url });
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const waiter = receiver.backend.acquire(request('k', LONG));
    await untilWaiting(receiver);
    await processes.steady.backend.release(holder, RELEASE);
    const grant = granted(await waiter);
    expect(grant.fencingToken).toBeGreaterThan(holder.fencingToken ?? 0n);
    expect(grant.validUntil - receiver.time.now()).toBeLessThan(3_000);
    expect(grant.validUntil - receiver.time.now()).toBeGreaterThan(2_000);
    expect((await processes.steady.backend.inspect('k'))?.expiresIn).toBeLessThanOrEqual(3_000);
    const renewed = await receiver.backend.renew(grant, grant.lease);
    expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
    expect((await processes.steady.backend.inspect('k'))?.expiresIn).toBeGreaterThan(NEARLY_LONG);
    expect(await receiver.backend.release(grant, RELEASE)).toBe('released');
    await receiver.backend.close();
  });

  it('confirms before it returns if the provisional lease is too short for minHold', async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const waiter = processes.shaky.backend.acquire(request('k', { ...LONG, minHold: 20_000 }));
    await waitersAre(processes.steady.backend, 'k', 1);
    await processes.steady.backend.release(holder, RELEASE);
    const grant = granted(await waiter);
    expect(grant.validUntil - performance.now()).toBeGreaterThan(NEARLY_LONG);
    expect((await processes.steady.backend.inspect('k'))?.expiresIn).toBeGreaterThan(NEARLY_LONG);
  });

  it('never grants a provisional lease longer than the lease', async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const waiter = processes.shaky.backend.acquire(request('k', { lease: 400 }));
    await waitersAre(processes.steady.backend, 'k', 1);
    await untilWaiting(processes.shaky);
    await processes.steady.backend.release(holder, RELEASE);
    const grant = granted(await waiter);
    expect(grant.validUntil - performance.now()).toBeLessThan(400);
    await until(async () => (await processes.steady.backend.inspect('k')) === null, 'the provisional lease is over');
  });

  it('is found by polling if its message is lost', async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const waiter = ask(processes.shaky.backend, request('k'));
    await waitersAre(processes.steady.backend, 'k', 1);
    await untilWaiting(processes.shaky);
    // The server does not notice that its message is not read: it sends the message, and the message is lost.
    processes.proxy.holdReplies();
    await processes.steady.backend.release(holder, RELEASE);
    processes.proxy.cut();
    processes.proxy.passReplies();
    expect(granted(await waiter).validUntil).toBeGreaterThan(performance.now());
  });

  it('passes over a process that does not listen, and serves it when it polls', async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const deaf = ask(processes.shaky.backend, request('k'));
    await waitersAre(processes.steady.backend, 'k', 1);
    await untilWaiting(processes.shaky);
    const second = processes.steady.backend.acquire(request('k'));
    await waitersAre(processes.steady.backend, 'k', 2);
    await redis.admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
    await processes.steady.backend.release(holder, RELEASE);
    // Either may come first after the cut. Both are served, one after the other.
    const first = await Promise.race([deaf.then(() => 'deaf'), second.then(() => 'second')]);
    if (first === 'second') {
      await processes.steady.backend.release(granted(await second), RELEASE);
      await processes.shaky.backend.release(granted(await deaf), RELEASE);
    } else {
      await processes.shaky.backend.release(granted(await deaf), RELEASE);
      await processes.steady.backend.release(granted(await second), RELEASE);
    }
    expect(await processes.steady.backend.inspect('k')).toBeNull();
  });

  it('passes over a dead process within seconds', async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    // The lease outlasts the timeout of this test.
    const gone = request('k', LONG);
    processes.shaky.backend.acquire(gone).catch(() => undefined);
    await waitersAre(processes.steady.backend, 'k', 1);
    await untilWaiting(processes.shaky);
    const next = processes.steady.backend.acquire(request('k'));
    await waitersAre(processes.steady.backend, 'k', 2);
    // Half-open: the server still considers both connections alive.
    processes.proxy.loseReplies();
    await processes.steady.backend.release(holder, RELEASE);
    granted(await next);
    processes.proxy.refuse();
    gone.abort();
  }, 60_000);

  it('releases a lock granted to a waiter that has left', async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const leaving = request('k');
    const answer = processes.shaky.backend.acquire(leaving);
    await waitersAre(processes.steady.backend, 'k', 1);
    await untilWaiting(processes.shaky);
    processes.proxy.holdReplies();
    await processes.steady.backend.release(holder, RELEASE);
    const released = leave(processes.shaky.backend, leaving);
    expect(await answer).toBe('busy');
    processes.proxy.passReplies();
    expect(await released).toBe('released');
    await until(async () => (await processes.steady.backend.inspect('k')) === null, 'the key is free');
  });

  describe('in shared mode', () => {
    const shared = { mode: 'shared' } as const;

    it('admits the readers behind a writer when it leaves', async () => {
      granted(await processes.steady.backend.acquire(request('k', shared)));
      const writer = request('k');
      const left = processes.shaky.backend.acquire(writer);
      await waitersAre(processes.steady.backend, 'k', 1);
      const reader = processes.steady.backend.acquire(request('k', shared));
      await waitersAre(processes.steady.backend, 'k', 2);
      const released = leave(processes.shaky.backend, writer);
      expect(await left).toBe('busy');
      granted(await reader);
      expect(await released).toBe('lost');
    });

    it('admits the readers behind a dead writer', async () => {
      // The leases outlast the timeout of this test.
      granted(await processes.steady.backend.acquire(request('k', { ...shared, ...LONG })));
      processes.shaky.backend.acquire(request('k', LONG)).catch(() => undefined);
      await waitersAre(processes.steady.backend, 'k', 1);
      const reader = processes.steady.backend.acquire(request('k', shared));
      await waitersAre(processes.steady.backend, 'k', 2);
      processes.proxy.refuse();
      granted(await reader);
    }, 60_000);
  });

  it('reports a key as retained if all readers are retained, and as held while one reader holds it', async () => {
    const terms = { mode: 'shared', minHold: 600_000 } as const;
    const first = granted(await processes.steady.backend.acquire(request('k', terms)));
    const second = granted(await processes.shaky.backend.acquire(request('k', terms)));
    await processes.steady.backend.release(first, { keepFor: 500_000, failed: false });
    expect(await processes.steady.backend.inspect('k')).toMatchObject({ state: 'held', mode: 'shared', holders: 1 });
    await processes.shaky.backend.release(second, { keepFor: 500_000, failed: false });
    expect(await processes.steady.backend.inspect('k')).toMatchObject({
      state: 'retained',
      mode: 'shared',
      holders: 0,
    });
  });

  it('polls when a retained key becomes free, not at the next second', async () => {
    const { backend, time, events } = await startWithFakeClock({ url: redis.server.url });
    const held = granted(await processes.steady.backend.acquire(request('k', { minHold: 400 })));
    await processes.steady.backend.release(held, { keepFor: 400, failed: false });
    const waiter = backend.acquire(request('k'));
    await untilWaiting({ backend, events });
    await until(async () => (await redis.admin.exists(new KeyLayout('lock').lockOf('k'))) === 0, 'the key is free');
    await time.advance(500);
    await backend.release(granted(await waiter), RELEASE);
    await backend.close();
  });

  it.each([
    ['an exclusive lock', 'exclusive', 1],
    ['a shared lock', 'shared', 1],
    ['one of two shared locks, after the other was released', 'shared', 2],
  ] as const)(
    'polls when a key becomes free that was retained by %s after the waiter had queued',
    async (_, mode, count) => {
      const { backend, time, events } = await startWithFakeClock({ url: redis.server.url });
      const held = granted(await processes.steady.backend.acquire(request('k', { mode, minHold: 400 })));
      const other = count === 2 && granted(await processes.steady.backend.acquire(request('k', { mode })));
      const waiter = backend.acquire(request('k'));
      await untilWaiting({ backend, events });
      await processes.steady.backend.release(held, { keepFor: 400, failed: false });
      if (other) await processes.steady.backend.release(other, RELEASE);
      const end = (await serverTime(redis.admin)) + 400;
      await until(async () => (await serverTime(redis.admin)) > end, 'the key is free');
      await backend.inspect('nothing');
      await time.advance(500);
      await backend.release(granted(await waiter), RELEASE);
      await backend.close();
    },
  );

  it("keeps the better place when it polls for the same caller, and takes the current caller's place otherwise", async () => {
    const { backend, time, events } = await startWithFakeClock({ url: redis.server.url });
    const held = granted(await processes.steady.backend.acquire(request('k', { lease: 600_000 })));
    const asked = { ...request('k'), since: time.now() };
    const answer = backend.acquire(asked);
    await untilWaiting({ backend, events });
    const queue = `${new KeyLayout('lock').lockOf('k')}}q`;
    const [member] = (await redis.admin.zrange(queue, '0', '0')) as [string];
    const askAgain = async () => {
      await time.advance(1_000);
      // An answer on the same connection shows that the poll was answered.
      await backend.inspect('nothing');
      return Number(await redis.admin.zscore(queue, member));
    };
    await redis.admin.zadd(queue, 1, member);
    expect(await askAgain()).toBe(1);
    asked.since = time.now();
    expect(await askAgain()).toBeGreaterThan(1);
    await redis.admin.zadd(queue, 1, member);
    expect(await askAgain()).toBe(1);
    await leave(backend, asked);
    expect(await answer).toBe('busy');
    await processes.steady.backend.release(held, RELEASE);
    await backend.close();
  });

  it('polls each second for each request, with its age, so that lost data does not change the order', async () => {
    const { backend, time, events } = await startWithFakeClock({ url: redis.server.url });
    const held = granted(await processes.steady.backend.acquire(request('k', { lease: 600_000 })));
    // Looks like requests of other processes, each 10 ms after the one before.
    const requests = Array.from({ length: 100 }, (_, index) =>
      request('k', { since: time.now() - 2_000 + 10 * index }),
    );
    const answers = requests.map((each) => backend.acquire(each));
    await untilWaiting({ backend, events }, 100);
    const queue = `${new KeyLayout('lock').lockOf('k')}}q`;
    const order = async () => (await redis.admin.zrange(queue, '0', '-1')).map((member) => member.replace(/^.*:/, ''));
    expect(await order()).toEqual(requests.map(({ id }) => id));
    await redis.admin.del(queue);
    await time.advance(1_000);
    await until(async () => (await redis.admin.zcard(queue)) === 100, 'all requests are queued again');
    expect(await order()).toEqual(requests.map(({ id }) => id));
    await Promise.all(requests.map((each) => leave(backend, each)));
    expect(new Set(await Promise.all(answers))).toEqual(new Set(['busy']));
    expect(await redis.admin.exists(queue)).toBe(0);
    await processes.steady.backend.release(held, RELEASE);
    await backend.close();
  });

  it("keeps each waiter's minHold, even if its process dies", async () => {
    const holder = granted(await processes.steady.backend.acquire(request('k')));
    const terms = { lease: 2_000, minHold: 600_000 };
    const waiters = [request('k', { ...terms, minHold: 1 }), request('k', terms)].map((each) =>
      processes.shaky.backend.acquire(each),
    );
    await waitersAre(processes.steady.backend, 'k', 2);
    await processes.steady.backend.release(holder, RELEASE);
    await processes.shaky.backend.release(granted(await waiters[0]!), RELEASE);
    granted(await waiters[1]!);
    processes.proxy.refuse();
    const left = (await processes.steady.backend.inspect('k'))?.expiresIn;
    expect(left).toBeGreaterThan(500_000);
    processes.proxy.admit();
  });

  it('sends one command a second for 100 waiters, and none for their messages', async () => {
    const { backend, time, events } = await startWithFakeClock({ url: redis.server.url });
    granted(await processes.steady.backend.acquire(request('k')));
    const requests = Array.from({ length: 100 }, () => request('k'));
    const answers = requests.map((each) => backend.acquire(each));
    await untilWaiting({ backend, events }, 100);
    await redis.admin.config('RESETSTAT');
    for (let second = 0; second < 3; second += 1) {
      await time.advance(1_000);
      // Answers on the same connection show that the poll was answered, and so was what the answer caused to be sent.
      await backend.inspect('nothing');
      await backend.inspect('nothing');
    }
    expect(await calls()).toBe(3 * (1 + 2));
    await Promise.all(requests.map((each) => leave(backend, each)));
    expect(new Set(await Promise.all(answers))).toEqual(new Set(['busy']));
    await waitersAre(processes.steady.backend, 'k', 0);
    await backend.close();
  });
});
