import { AsyncLocalStorage } from 'node:async_hooks';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { jest } from '@jest/globals';
import type { Lock } from '../../lib/api/lock.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import type { Grant, LockProvider } from '../../lib/api/lock-provider.js';
import type { Clock } from '../../lib/api/clock.js';
import { KeyRequest } from '../../lib/core/acquire/key-request.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisBackend } from '../../lib/providers/redis/redis-backend.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { redisForTests, serverTime, until } from './seam.js';

interface Process {
  readonly locks: LockManager;
  /** The grants that the server gave this process. */
  readonly grants: Grant[];
}

/** A caller that got the lock. */
interface Entry {
  readonly process: Process;
  readonly came: number;
  readonly token: bigint;
  /** The first token of its cohort. */
  readonly cohort: bigint;
}

// To Redis, each manager is a separate process.
describe('cohorts of processes on one Redis', () => {
  const redis = redisForTests();
  const lock = new KeyLayout('lock').lockOf('k');
  /** The longest round trip of a request so far, in ms. */
  let longestWay = 0;
  const started: { readonly locks: LockManager; readonly clock: Clock | undefined }[] = [];

  afterEach(async () => {
    jest.restoreAllMocks();
    longestWay = 0;
    const stopped = Promise.all(started.map(({ locks }) => locks.stop()));
    for (const { clock } of started.splice(0)) if (clock instanceof FakeClock) await clock.advance(60_000);
    await stopped;
  });

  /** With a clock that stands still, a cohort never runs out of time. */
  async function start(clock?: Clock, url = redis.server.url): Promise<Process> {
    const grants: Grant[] = [];
    const inner = new RedisLockProvider({ url, ...(clock && { commandTimeout: '1h' }) });
    const provider: LockProvider = {
      createBackend: (context) => {
        const backend = inner.createBackend(context);
        const acquire = backend.acquire.bind(backend);
        backend.acquire = async (request) => {
          const sentAt = performance.now();
          const arrive = () => (longestWay = Math.max(longestWay, performance.now() - sentAt));
          const waits = request.waits.bind(request);
          request.waits = (instead) => {
            arrive();
            waits(instead);
          };
          const answer = await acquire(request);
          if (typeof answer === 'object') grants.push(answer);
          return answer;
        };
        return backend;
      },
    };
    const locks = new LockManager({ providers: { redis: provider }, clock, defaults: { wait: 60_000 } });
    started.push({ locks, clock });
    await locks.start();
    return { locks, grants };
  }

  const tokenOf = (held: Lock) => held.fencingToken ?? 0n;

  /** Starts callers that wait in this order. Each records its name when it gets the lock, and keeps the lock. */
  function callers(process: Process, entered: string[], names: readonly string[], options: LockOptions = {}) {
    return names.map(async (name) => {
      const held = await process.locks.acquire('k', options);
      entered.push(name);
      return held;
    });
  }

  const queued = (count: number) =>
    until(async () => (await redis.admin.zcard(`${lock}}q`)) === count, `${count} processes are queued`);

  /** Returns the cohort of a token: the grant whose block contains it. */
  function cohortOf({ grants }: Process, token: bigint): bigint {
    const grant = grants.find(
      ({ fencingToken, followers = 0 }) =>
        fencingToken !== null && token >= fencingToken && token <= fencingToken + BigInt(followers),
    );
    if (grant === undefined) throw new Error(`No grant contains the token ${token}.`);
    return grant.fencingToken ?? 0n;
  }

  /** Returns a function that takes the lock once and records the entry. Fails if two callers are inside. */
  function looper(entries: Entry[]) {
    let inside = 0;
    return async (process: Process) => {
      const came = performance.now();
      await process.locks.withLock('k', async (held) => {
        inside += 1;
        expect(inside).toBe(1);
        const token = tokenOf(held);
        entries.push({ process, came, token, cohort: cohortOf(process, token) });
        await nextTurn();
        inside -= 1;
      });
    };
  }

  /**
   * Counts the cohorts of other processes in which a caller that arrived later was served before this entry. The server
   * knows how long a caller had waited when its request was sent, so the caller seems younger by the travel time of the
   * request: 50 ms on a busy machine.
   */
  function overtakingCohorts(entries: readonly Entry[], index: number): number {
    const { process, came } = entries[index] as Entry;
    const cohorts = new Set<bigint>();
    for (const other of entries.slice(0, index)) {
      if (other.process !== process && other.came > came + longestWay) cohorts.add(other.cohort);
    }
    return cohorts.size;
  }

  function judge(entries: readonly Entry[]): void {
    const tokens = entries.map(({ token }) => token);
    expect(tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint))).toBe(true);
    const sizes = new Map<bigint, number>();
    for (const { cohort } of entries) sizes.set(cohort, (sizes.get(cohort) ?? 0) + 1);
    expect(Math.max(...sizes.values())).toBeLessThanOrEqual(64);
    // Without a cohort of two, the test shows nothing.
    expect(Math.max(...sizes.values())).toBeGreaterThan(1);
    expect(Math.max(...entries.map((_, index) => overtakingCohorts(entries, index)))).toBeLessThanOrEqual(1);
  }

  it('cohorts exclude each other, tokens grow across them, and no caller is overtaken by more than one cohort of another process', async () => {
    const processes = [await start(), await start()];
    const entries: Entry[] = [];
    const take = looper(entries);
    const loop = async (process: Process) => {
      for (let round = 0; round < 60; round += 1) await take(process);
    };
    await Promise.all(processes.flatMap((process) => Array.from({ length: 8 }, () => loop(process))));
    expect(entries).toHaveLength(960);
    judge(entries);
    // Both processes were served throughout.
    const firstHalf = entries.slice(0, 480).filter(({ process }) => process === processes[0]).length;
    expect(firstHalf).toBeGreaterThan(120);
    expect(firstHalf).toBeLessThan(360);
  }, 60_000);

  it("a process with 1 000 callers lets in another process's only caller after earlier callers and one cohort", async () => {
    const [many, one] = [await start(), await start()] as const;
    const entries: Entry[] = [];
    const take = looper(entries);
    let left = 1_000;
    const twice = async () => {
      await take(many);
      await take(many);
      left -= 1;
    };
    const crowd = Array.from({ length: left }, twice);
    let rounds = 0;
    while (left > 0) {
      await take(one);
      rounds += 1;
    }
    await Promise.all(crowd);
    expect(rounds).toBeGreaterThan(1);
    expect(entries).toHaveLength(2_000 + rounds);
    judge(entries);
  }, 60_000);

  describe('while the clock stands still', () => {
    let time: FakeClock;
    let [crowd, other]: Process[] = [];

    /** Lets time pass here and on the server, so that a later caller is never older than a queued one. */
    async function pass(ms: number) {
      const end = (await serverTime(redis.admin)) + ms;
      await until(async () => (await serverTime(redis.admin)) >= end, 'the time has passed on the server');
      await time.advance(ms);
    }

    /**
     * A third process holds the lock. Behind it wait the first caller of the crowd, one of the other process, and then
     * the rest of the crowd. Returns their locks, and the order in which they get them.
     */
    async function waiting(size: number, options: LockOptions = {}, url?: string) {
      time = new FakeClock();
      [crowd, other] = [await start(time, url), await start(time)];
      const holder = await (await start(time)).locks.acquire('k');
      const entered: string[] = [];
      const [first] = callers(crowd, entered, ['crowd 0'], options);
      await queued(1);
      await pass(1);
      const [alone] = callers(other, entered, ['alone']);
      await queued(2);
      await pass(1);
      const names = Array.from({ length: size - 1 }, (_, index) => `crowd ${index + 1}`);
      const rest = callers(crowd, entered, names, options);
      return { holder, entered, alone: alone!, members: [first!, ...rest] };
    }

    const confirmed = async () => {
      await pass(1);
      await until(async () => (await redis.admin.get(lock))?.startsWith('w') === true, 'the lease is confirmed');
      for (const { locks } of [crowd!, other!]) await locks.admin.inspect('nothing');
    };

    it('a cohort serves 64 callers without a message, then the process that has waited longest', async () => {
      const { holder, entered, alone, members } = await waiting(80);
      await holder.release();
      const first = await members[0]!;
      await confirmed();
      await redis.admin.config('RESETSTAT');
      const tokens = [tokenOf(first)];
      await first.release();
      for (const member of members.slice(1, 63)) {
        const held = await member;
        tokens.push(tokenOf(held));
        await held.release();
      }
      tokens.push(tokenOf(await members[63]!));
      expect(await redis.admin.info('commandstats')).not.toContain('cmdstat_evalsha');
      expect(tokens).toEqual(tokens.map((_, index) => tokens[0]! + BigInt(index)));
      // The server stores the last token of the block.
      expect((await redis.admin.get(lock))?.slice(1, 17)).toBe(String(tokens[63]));
      await (await members[63]!).release();
      const between = await alone;
      expect(entered).toEqual([...Array.from({ length: 64 }, (_, index) => `crowd ${index}`), 'alone']);
      expect(tokenOf(between)).toBeGreaterThan(tokens[63]!);
      await between.release();
      const next = await members[64]!;
      expect(tokenOf(next)).toBeGreaterThan(tokenOf(between));
      await next.release();
      for (const member of members.slice(65)) await (await member).release();
      expect(entered).toHaveLength(81);
      await until(async () => (await redis.admin.exists(lock, `${lock}}q`)) === 0, 'nothing is left');
    });

    it('a cohort admits no caller later than 10 ms after its grant', async () => {
      const { holder, entered, alone, members } = await waiting(3);
      await holder.release();
      const first = await members[0]!;
      await pass(10);
      await first.release();
      const second = await members[1]!;
      expect(tokenOf(second)).toBe(tokenOf(first) + 1n);
      await pass(1);
      await second.release();
      const between = await alone;
      await between.release();
      expect(tokenOf(await members[2]!)).toBeGreaterThan(tokenOf(between));
      expect(entered).toEqual(['crowd 0', 'crowd 1', 'alone', 'crowd 2']);
    });

    it('a cohort admits no caller that arrived after its grant', async () => {
      const { holder, entered, alone, members } = await waiting(1);
      await holder.release();
      const first = await members[0]!;
      const [late] = callers(crowd!, entered, ['late']);
      await first.release();
      await (await alone).release();
      await late;
      expect(entered).toEqual(['crowd 0', 'alone', 'late']);
    });

    it('a lock with minHold is not handed off locally', async () => {
      const { holder, entered, alone, members } = await waiting(2, { minHold: 1 });
      await holder.release();
      const first = await members[0]!;
      await pass(2);
      await first.release();
      await (await alone).release();
      await (await members[1]!).release();
      expect(entered).toEqual(['crowd 0', 'alone', 'crowd 1']);
    });

    it('a renewal answered "lost" after a local handoff aborts only the current holder', async () => {
      for (const isInFlight of [false, true]) {
        const { holder, alone, members } = await waiting(2);
        await holder.release();
        const first = await members[0]!;
        if (!isInFlight) await confirmed();
        // Looks as if the lock had been granted to another holder meanwhile.
        await redis.admin.setrange(lock, 1, '4'.repeat(16));
        // The confirmation of the provisional lease is sent, and races the local handoff.
        const sent = isInFlight ? time.advance(1) : undefined;
        await first.release();
        const second = await members[1]!;
        expect(tokenOf(second)).toBe(tokenOf(first) + 1n);
        await sent;
        if (!isInFlight) await time.advance(10_000);
        await until(() => second.signal.aborted, 'the second caller has lost the lock');
        expect(second.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
        expect(first.signal.aborted).toBe(false);
        expect(await second.release()).toBe('lost');
        await (await alone).release();
      }
    });

    it("a caller that leaves does not block later ones: its process's request serves the next caller", async () => {
      time = new FakeClock();
      [crowd, other] = [await start(time), await start(time)];
      const holder = await (await start(time)).locks.acquire('k');
      const entered: string[] = [];
      const leaving = ['first', 'third'].map(() => new AbortController());
      const names = ['first', 'second', 'third', 'fourth'];
      const members: Promise<Lock>[] = [];
      for (const [index, name] of names.entries()) {
        const signal = leaving[index / 2]?.signal;
        members.push(...callers(crowd, entered, [name], signal && { signal }));
        await queued(1);
      }
      const left = [0, 2].map((index) => expect(members[index]).rejects.toBe('enough'));
      await pass(1);
      const [alone] = callers(other, entered, ['alone']);
      await queued(2);
      // The grant is in flight when the first caller leaves.
      const released = holder.release();
      leaving[0]!.abort('enough');
      await released;
      const second = await members[1]!;
      leaving[1]!.abort('enough');
      await second.release();
      const fourth = await members[3]!;
      expect(tokenOf(fourth)).toBe(tokenOf(second) + 1n);
      await fourth.release();
      await (await alone!).release();
      expect(entered).toEqual(['second', 'fourth', 'alone']);
      await Promise.all(left);
      await until(async () => (await redis.admin.exists(lock, `${lock}}q`)) === 0, 'nothing is left');
    });

    it('a cohort continues while the server is unreachable, and releases the lock afterwards', async () => {
      const proxy = await startTcpProxy(redis.server.port);
      try {
        const { holder, entered, alone, members } = await waiting(2, {}, `redis://127.0.0.1:${proxy.port}`);
        await holder.release();
        const first = await members[0]!;
        await confirmed();
        proxy.refuse();
        await until(
          () =>
            crowd!.locks.admin.inspect('k').then(
              () => false,
              () => true,
            ),
          'the provider has noticed the outage',
        );
        await first.release();
        const second = await members[1]!;
        expect([tokenOf(second), second.isHeld()]).toEqual([tokenOf(first) + 1n, true]);
        // The process can't send the release, so no other process gets the lock before it can or the lease ends.
        const released = second.release();
        expect(entered).toEqual(['crowd 0', 'crowd 1']);
        expect((await redis.admin.get(lock))?.[0]).toBe('w');
        proxy.admit();
        await until(async () => {
          await time.advance(100);
          return entered.includes('alone');
        }, 'the release has arrived');
        await released;
        await (await alone).release();
      } finally {
        await proxy.close();
      }
    });

    it('a forced release by another process within a cohort serves the next process, with a token above the whole block', async () => {
      const { holder, alone, members } = await waiting(3);
      await holder.release();
      const first = await members[0]!;
      await confirmed();
      expect(await other!.locks.admin.forceRelease('k')).toBe(true);
      const next = await alone;
      expect(tokenOf(next)).toBeGreaterThanOrEqual(tokenOf(first) + 64n);
      // Confirms before the clock passes the provisional lease.
      await confirmed();
      await first.release();
      const second = await members[1]!;
      expect(tokenOf(second)).toBe(tokenOf(first) + 1n);
      await time.advance(10_000);
      await until(() => second.signal.aborted, 'the second caller has lost the lock');
      expect(await second.release()).toBe('lost');
      expect(next.isHeld()).toBe(true);
      await next.release();
      expect(tokenOf(await members[2]!)).toBeGreaterThan(tokenOf(next));
    });

    it('a forced release by its own process ends a cohort', async () => {
      const { holder, entered, alone, members } = await waiting(2);
      await holder.release();
      const first = await members[0]!;
      await confirmed();
      expect(await crowd!.locks.admin.forceRelease('k')).toBe(true);
      await first.release();
      await (await alone).release();
      await members[1]!;
      expect(entered).toEqual(['crowd 0', 'alone', 'crowd 1']);
    });

    it('FLUSHALL within a cohort is detected at the next renewal, and later tokens are above the whole block', async () => {
      const { holder, alone, members } = await waiting(3);
      await holder.release();
      const first = await members[0]!;
      await confirmed();
      await redis.admin.flushall();
      await first.release();
      const second = await members[1]!;
      // The other process polls every second. The holder's process detects the loss when it renews.
      await time.advance(1_000);
      const next = await alone;
      expect(tokenOf(next)).toBeGreaterThanOrEqual(tokenOf(first) + 64n);
      await time.advance(10_000);
      await until(() => second.signal.aborted, 'the second caller has lost the lock');
      await next.release();
      expect(tokenOf(await members[2]!)).toBeGreaterThan(tokenOf(next));
    });

    /**
     * Deletes the queue of three waiting processes, lets them poll in reverse order, and returns the order in which
     * they are served.
     */
    async function orderAfterLoss(): Promise<string[]> {
      const times = [new FakeClock(), new FakeClock(), new FakeClock()];
      const processes: Process[] = [];
      for (const each of times) processes.push(await start(each));
      const keeper = await (await start(new FakeClock())).locks.acquire('k');
      const entered: string[] = [];
      const all: Promise<Lock>[] = [];
      for (const [index, process] of processes.entries()) {
        all.push(...callers(process, entered, [`${index} a`, `${index} b`]));
        await queued(index + 1);
        // Makes the next process arrive a second later: each process polls on the second.
        for (const each of times) await each.advance(1_000);
        // Uses the same connections, so the polls have been answered: a pending poll would hold back the next one.
        for (const { locks } of processes) await locks.admin.inspect('nothing');
      }
      // The lock stays, so no process gets it before all have polled.
      await redis.admin.del(`${lock}}q`);
      for (const [index, each] of [...times].reverse().entries()) {
        await each.advance(1_000);
        await queued(index + 1);
      }
      await keeper.release();
      await Promise.all(all.map(async (each) => (await each).release()));
      return entered;
    }

    it('three processes are served by age again after the queue was lost', async () => {
      expect(await orderAfterLoss()).toEqual(['0 a', '0 b', '1 a', '1 b', '2 a', '2 b']);
    });

    it('three processes are served by poll order if the age is not resent (guilty control)', async () => {
      const asked = new Set<KeyRequest>();
      jest.spyOn(KeyRequest.prototype, 'since', 'get').mockImplementation(function (this: KeyRequest) {
        asked.add(this);
        return performance.now();
      });
      expect(await orderAfterLoss()).toEqual(['2 a', '2 b', '1 a', '1 b', '0 a', '0 b']);
      expect(asked.size).toBe(4);
    });
  });

  /**
   * Returns the order in which an older caller of the releasing process and a younger one of another process are
   * served.
   */
  async function orderAtRelease(releasing: { readonly fair?: false } = {}): Promise<string[]> {
    const [crowd, other] = [await start(), await start()];
    Object.assign(crowd.locks.admin.backend(RedisBackend).capabilities, releasing);
    const held = await crowd.locks.acquire('k');
    const entered: string[] = [];
    // The older caller arrives after the grant, so it is not in its cohort.
    const older = callers(crowd, entered, ['older']);
    const end = (await serverTime(redis.admin)) + 1;
    await until(async () => (await serverTime(redis.admin)) >= end, 'the next caller arrives later');
    const younger = callers(other, entered, ['younger']);
    await queued(1);
    await held.release();
    await Promise.all([...older, ...younger].map(async (each) => (await each).release()));
    return entered;
  }

  it("a process's next request is executed before its release, so the oldest caller is served first", async () => {
    expect(await orderAtRelease()).toEqual(['older', 'younger']);
  });

  it('the younger caller is served first if the release is executed first (guilty control)', async () => {
    expect(await orderAtRelease({ fair: false })).toEqual(['younger', 'older']);
  });

  it.each<[string, { callers: number; keys: number; options: LockOptions }]>([
    // Two of the 16 had half as many turns when the same callers ended each grant.
    ['of a limited lock', { callers: 16, keys: 1, options: { limit: 4 } }],
    // Two of each key's callers had half as many turns when their grant was delivered before the reply to the release
    // that caused it.
    ['of one key', { callers: 4, keys: 1, options: {} }],
    ['of several keys, whose operations travel together,', { callers: 12, keys: 3, options: {} }],
  ])(
    'callers %s that reacquire immediately get equal turns',
    async (_, { callers, keys, options }) => {
      const { locks } = await start();
      const turns = new Array<number>(callers).fill(0);
      let left = callers * 200;
      await Promise.all(
        turns.map(async (__, caller) => {
          while (left > 0) {
            const lock = await locks.acquire(`k${caller % keys}`, { ...options, wait: '60s' });
            left -= 1;
            turns[caller]! += 1;
            await lock.release();
          }
        }),
      );
      for (let key = 0; key < keys; key += 1) {
        const ofKey = turns.filter((___, caller) => caller % keys === key);
        expect(Math.min(...ofKey) / Math.max(...ofKey)).toBeGreaterThan(0.8);
      }
    },
    60_000,
  );

  it("20 000 chained handoffs retain neither locks nor the callers' async contexts", async () => {
    const { locks } = await start();
    const storage = new AsyncLocalStorage<object>();
    const contexts: WeakRef<object>[] = [];
    const held: WeakRef<object>[] = [];
    let rounds = 0;
    const { gc } = globalThis as { gc?: () => void };
    const collect = async () => {
      for (let times = 0; times < 3; times += 1) {
        await nextTurn();
        gc?.();
      }
    };
    // Each worker starts its next call before it releases, so there is always a waiter to hand off to.
    const untilRound = async (end: number) => {
      const next = async (): Promise<void> => {
        rounds += 1;
        if (rounds > end) return;
        const context = { round: rounds, weight: new Array<number>(100).fill(rounds) };
        contexts.push(new WeakRef(context));
        await storage.run(context, () => locks.withLock('k', async (lock) => held.push(new WeakRef(lock))));
      };
      const worker = async () => {
        while (rounds < end) await next();
      };
      await Promise.all([worker(), worker(), worker(), worker()]);
    };
    await untilRound(20_000);
    await collect();
    expect(contexts).toHaveLength(20_000);
    expect(held).toHaveLength(20_000);
    for (const objects of [contexts, held]) {
      expect(objects.filter((object) => object.deref() !== undefined).length).toBeLessThan(200);
    }
    expect([locks.admin.held(), locks.admin.waiting()]).toEqual([[], []]);
  }, 60_000);
});
