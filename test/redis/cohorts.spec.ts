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
  /** What the server has granted to it. */
  readonly grants: Grant[];
}

/** A caller that has entered. */
interface Entry {
  readonly process: Process;
  readonly came: number;
  readonly token: bigint;
  /** The first token of its cohort. */
  readonly cohort: bigint;
}

// To Redis, each manager is a process of its own.
describe('cohorts of processes on one Redis', () => {
  const redis = redisForTests();
  const lock = new KeyLayout('lock').lockOf('k');
  /** The longest time that a request has taken to the server and back, in ms. */
  let longestWay = 0;
  const started: { readonly locks: LockManager; readonly clock: Clock | undefined }[] = [];

  afterEach(async () => {
    jest.restoreAllMocks();
    longestWay = 0;
    const stopped = Promise.all(started.map(({ locks }) => locks.stop()));
    for (const { clock } of started.splice(0)) if (clock instanceof FakeClock) await clock.advance(60_000);
    await stopped;
  });

  /** With a clock that stands still, its cohorts have all the time that a test needs. */
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

  /** Callers that wait, in this order; each is named when it has the lock, and keeps it. */
  function callers(process: Process, entered: string[], names: readonly string[], options: LockOptions = {}) {
    return names.map(async (name) => {
      const held = await process.locks.acquire('k', options);
      entered.push(name);
      return held;
    });
  }

  const queued = (count: number) =>
    until(async () => (await redis.admin.zcard(`${lock}}q`)) === count, `${count} processes are queued`);

  /** The cohort of a token: the grant in whose block it is. */
  function cohortOf({ grants }: Process, token: bigint): bigint {
    const grant = grants.find(
      ({ fencingToken, followers = 0 }) =>
        fencingToken !== null && token >= fencingToken && token <= fencingToken + BigInt(followers),
    );
    if (grant === undefined) throw new Error(`The token ${token} is of no grant.`);
    return grant.fencingToken ?? 0n;
  }

  /** Takes the lock once, and records that; nobody else may be inside. */
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
   * In how many cohorts of another process somebody went before an entry that had come later. The server knows for how long a caller had waited
   * when its request was sent, so it takes it for younger by the time that the request travels: on a busy machine, by 50 ms.
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
    // Otherwise nothing was shown about cohorts.
    expect(Math.max(...sizes.values())).toBeGreaterThan(1);
    expect(Math.max(...entries.map((_, index) => overtakingCohorts(entries, index)))).toBeLessThanOrEqual(1);
  }

  it('exclude each other, tokens grow over both, and nobody is overtaken by more than one cohort of the other', async () => {
    const processes = [await start(), await start()];
    const entries: Entry[] = [];
    const take = looper(entries);
    const loop = async (process: Process) => {
      for (let round = 0; round < 60; round += 1) await take(process);
    };
    await Promise.all(processes.flatMap((process) => Array.from({ length: 8 }, () => loop(process))));
    expect(entries).toHaveLength(960);
    judge(entries);
    // Both were served all the time.
    const firstHalf = entries.slice(0, 480).filter(({ process }) => process === processes[0]).length;
    expect(firstHalf).toBeGreaterThan(120);
    expect(firstHalf).toBeLessThan(360);
  }, 60_000);

  it('a process with 1 000 callers lets one with a single caller in, behind those that came before it and one cohort', async () => {
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

    /** Time passes, and on the server no less: a caller that comes later is never older than one that was queued before it. */
    async function pass(ms: number) {
      const end = (await serverTime(redis.admin)) + ms;
      await until(async () => (await serverTime(redis.admin)) >= end, 'the time has passed on the server');
      await time.advance(ms);
    }

    /**
     * A third process holds the lock. Behind it wait the first of the crowd, then one of the other process, then the rest of the crowd.
     * Answers what they get, and the order in which they do.
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
      await until(async () => (await redis.admin.get(lock))?.startsWith('w') === true, 'it is confirmed');
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

    it('a cohort lets nobody in later than 10 ms after its grant', async () => {
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

    it('a cohort lets nobody in that came after its grant', async () => {
      const { holder, entered, alone, members } = await waiting(1);
      await holder.release();
      const first = await members[0]!;
      const [late] = callers(crowd!, entered, ['late']);
      await first.release();
      await (await alone).release();
      await late;
      expect(entered).toEqual(['crowd 0', 'alone', 'late']);
    });

    it('a lock with a minHold is not handed on inside the process', async () => {
      const { holder, entered, alone, members } = await waiting(2, { minHold: 1 });
      await holder.release();
      const first = await members[0]!;
      await pass(2);
      await first.release();
      await (await alone).release();
      await (await members[1]!).release();
      expect(entered).toEqual(['crowd 0', 'alone', 'crowd 1']);
    });

    it('a renewal that is answered "lost" after a handoff concerns the one that holds now', async () => {
      for (const isInFlight of [false, true]) {
        const { holder, alone, members } = await waiting(2);
        await holder.release();
        const first = await members[0]!;
        if (!isInFlight) await confirmed();
        // As if it had been granted again meanwhile.
        await redis.admin.setrange(lock, 1, '4'.repeat(16));
        // The confirmation of the provisional lease is sent, and meets the handoff.
        const sent = isInFlight ? time.advance(1) : undefined;
        await first.release();
        const second = await members[1]!;
        expect(tokenOf(second)).toBe(tokenOf(first) + 1n);
        await sent;
        if (!isInFlight) await time.advance(10_000);
        await until(() => second.signal.aborted, 'the second has lost it');
        expect(second.signal.reason).toMatchObject({ code: 'LOCK_LOST' });
        expect(first.signal.aborted).toBe(false);
        expect(await second.release()).toBe('lost');
        await (await alone).release();
      }
    });

    it('a caller that leaves keeps nobody behind it: the request of its process serves the next one', async () => {
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
      // The grant is on its way when the first one leaves.
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

    it('a cohort goes on while the server cannot be reached, and its release follows', async () => {
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
          'it knows',
        );
        await first.release();
        const second = await members[1]!;
        expect([tokenOf(second), second.isHeld()]).toEqual([tokenOf(first) + 1n, true]);
        // Its process cannot say so, and nobody else has it before it can, or the lease is over.
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

    it('a forced release by another process inside a cohort serves the next process, with a larger token than the whole block', async () => {
      const { holder, alone, members } = await waiting(3);
      await holder.release();
      const first = await members[0]!;
      await confirmed();
      expect(await other!.locks.admin.forceRelease('k')).toBe(true);
      const next = await alone;
      expect(tokenOf(next)).toBeGreaterThanOrEqual(tokenOf(first) + 64n);
      // Before its clock goes on beyond the provisional lease.
      await confirmed();
      await first.release();
      const second = await members[1]!;
      expect(tokenOf(second)).toBe(tokenOf(first) + 1n);
      await time.advance(10_000);
      await until(() => second.signal.aborted, 'the second has lost it');
      expect(await second.release()).toBe('lost');
      expect(next.isHeld()).toBe(true);
      await next.release();
      expect(tokenOf(await members[2]!)).toBeGreaterThan(tokenOf(next));
    });

    it('its own forced release ends a cohort', async () => {
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

    it('FLUSHALL inside a cohort: it is found at the next renewal, and tokens go on behind the whole block', async () => {
      const { holder, alone, members } = await waiting(3);
      await holder.release();
      const first = await members[0]!;
      await confirmed();
      await redis.admin.flushall();
      await first.release();
      const second = await members[1]!;
      // The other one asks each second. The process of the holder finds its loss when it renews.
      await time.advance(1_000);
      const next = await alone;
      expect(tokenOf(next)).toBeGreaterThanOrEqual(tokenOf(first) + 64n);
      await time.advance(10_000);
      await until(() => second.signal.aborted, 'the second has lost it');
      await next.release();
      expect(tokenOf(await members[2]!)).toBeGreaterThan(tokenOf(next));
    });

    /** The order in which three processes are served whose place in the queue was lost, and who then ask again, the last one first. */
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
        // As if the next one came a second later: each asks again on the second.
        for (const each of times) await each.advance(1_000);
        // On the same connections, so those asks are answered: one in flight would keep the next from being sent.
        for (const { locks } of processes) await locks.admin.inspect('nothing');
      }
      // The lock stays, so that nobody gets it before all have asked.
      await redis.admin.del(`${lock}}q`);
      for (const [index, each] of [...times].reverse().entries()) {
        await each.advance(1_000);
        await queued(index + 1);
      }
      await keeper.release();
      await Promise.all(all.map(async (each) => (await each).release()));
      return entered;
    }

    it('the order by age is back over three processes when the data was lost', async () => {
      expect(await orderAfterLoss()).toEqual(['0 a', '0 b', '1 a', '1 b', '2 a', '2 b']);
    });

    it('it is another one where the age is not sent again (guilty control)', async () => {
      const asked = new Set<KeyRequest>();
      jest.spyOn(KeyRequest.prototype, 'since', 'get').mockImplementation(function (this: KeyRequest) {
        asked.add(this);
        return performance.now();
      });
      expect(await orderAfterLoss()).toEqual(['2 a', '2 b', '1 a', '1 b', '0 a', '0 b']);
      expect(asked.size).toBe(4);
    });
  });

  /** The order in which a caller of the process that releases and a younger one of another process are served. */
  async function orderAtRelease(releasing: { readonly fair?: false } = {}): Promise<string[]> {
    const [crowd, other] = [await start(), await start()];
    Object.assign(crowd.locks.admin.backend(RedisBackend).capabilities, releasing);
    const held = await crowd.locks.acquire('k');
    const entered: string[] = [];
    // It comes after the grant, so it is not of its cohort.
    const older = callers(crowd, entered, ['older']);
    const end = (await serverTime(redis.admin)) + 1;
    await until(async () => (await serverTime(redis.admin)) >= end, 'the next one comes later');
    const younger = callers(other, entered, ['younger']);
    await queued(1);
    await held.release();
    await Promise.all([...older, ...younger].map(async (each) => (await each).release()));
    return entered;
  }

  it('the next request of a process is executed before its release, so the oldest caller is served', async () => {
    expect(await orderAtRelease()).toEqual(['older', 'younger']);
  });

  it('it is another one where the release comes first (guilty control)', async () => {
    expect(await orderAtRelease({ fair: false })).toEqual(['younger', 'older']);
  });

  it.each<[string, { callers: number; keys: number; options: LockOptions }]>([
    // Two of 16 had half as many when the same ones ended each grant.
    ['of a limited lock', { callers: 16, keys: 1, options: { limit: 4 } }],
    // Two of each key had half as many when their grant was delivered before the answer to the release that led to it.
    ['of one key', { callers: 4, keys: 1, options: {} }],
    ['of several keys, whose operations travel together,', { callers: 12, keys: 3, options: {} }],
  ])(
    'callers %s that come again at once have their turns alike',
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

  it('20 000 handoffs in a chain keep neither locks nor the async contexts of callers', async () => {
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
    // Each schedules the next one before it releases, so that there is always one to hand it to.
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
