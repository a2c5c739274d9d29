import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { DeadlockMember } from '../../lib/api/deadlock.js';
import { LockDeadlockError } from '../../lib/api/errors.js';
import { instanceIdOf } from '../../lib/core/toolkit/instance-ids.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { startRedisCluster } from '../servers/redis-cluster.js';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import { granted, RELEASE, redisForTests, request, startBackend, until, untilWaiting } from './seam.js';

const redis = redisForTests();
const layout = new KeyLayout('lock');

// More beats than finding a deadlock takes. A beat takes half a second.
const BEATS = 5;

/** Resolves when the process with this wait text has looked for deadlocks in enough beats to find one. */
async function untilLooked(text: string): Promise<void> {
  const beats = new Set<string>();
  await until(async () => {
    const beat = await redis.admin.get(text);
    if (beat !== null) beats.add(beat);
    return beats.size > BEATS;
  }, 'it has looked for deadlocks');
}

interface Ended {
  readonly outcome: string;
  readonly took: number;
  readonly message?: string;
  readonly cycle?: readonly DeadlockMember[];
}

interface Report extends Partial<Ended> {
  readonly event: string;
  readonly holder?: string;
}

interface Program {
  readonly process: ChildProcess;
  readonly holder: string;
  /** The name of its wait text. */
  readonly text: string;
  readonly log: () => string[];
  waitNow(): void;
  end(): Promise<Ended>;
  readonly isWaiting: boolean;
  /** Whether other processes can see what it waits for. */
  isPublished(): Promise<boolean>;
}

describe('processes that wait for each other in a cycle', () => {
  let library: CompiledLibrary;
  const running: ChildProcess[] = [];

  beforeAll(async () => {
    library = await compileLibrary();
  }, 60_000);
  afterEach(() => {
    for (const child of running.splice(0)) child.kill('SIGKILL');
  });
  afterAll(() => library.remove());

  async function start(instance: string, holds: string, waitsFor: string, lease = 600_000): Promise<Program> {
    const path = fileURLToPath(new URL('deadlock-program.mjs', import.meta.url));
    const child = fork(path, [library.folder, redis.server.url, instance], { execArgv: [] });
    running.push(child);
    const reports: Report[] = [];
    child.on('message', (report) => reports.push(report as Report));
    const report = async (event: string) => {
      const found = () => reports.find((each) => each.event === event);
      await until(() => found() !== undefined, `${instance} reports "${event}"`, 90_000);
      return found() as Report;
    };
    await report('ready');
    child.send({ holds, waitsFor, lease });
    const { holder = '' } = await report('holds');
    const text = layout.textOf('waits', `${instanceIdOf(holder)}:redis`);
    return {
      process: child,
      holder,
      text,
      log: () => reports.filter(({ event }) => event === 'log').map(({ message = '' }) => message),
      waitNow: () => child.send({}),
      end: async () => (await report('ended')) as unknown as Ended,
      get isWaiting() {
        return !reports.some(({ event }) => event === 'ended');
      },
      isPublished: async () => (await redis.admin.exists(text)) === 1,
    };
  }

  it('a cycle of three: exactly one process is refused within 5 s, with the cycle, and the others get their locks', async () => {
    const programs = [await start('one', 'a', 'b'), await start('two', 'b', 'c'), await start('three', 'c', 'a')];
    for (const program of programs) program.waitNow();
    const ends = await Promise.all(programs.map((program) => program.end()));
    expect(ends.map(({ outcome }) => outcome).sort()).toEqual(['LOCK_DEADLOCK', 'done', 'done']);
    const victim = ends.find(({ outcome }) => outcome === 'LOCK_DEADLOCK') as Ended;
    expect(victim.took).toBeGreaterThan(2_000);
    // On an idle machine, less than 5 s.
    expect(victim.took).toBeLessThan(50_000);
    expect(victim.cycle?.map(({ instance, holds, waitsFor }) => `${instance} ${holds} ${waitsFor}`).sort()).toEqual([
      'one a b',
      'three c a',
      'two b c',
    ]);
    expect(victim.message).toContain('callers are waiting for each other in a cycle: this call holds');
    const logged = programs.flatMap((program) => program.log());
    expect(logged.filter((line) => line.includes('in a cycle: this call holds'))).toHaveLength(1);
    await until(async () => (await redis.admin.keys('lock:*wait:*')).length === 0, 'the wait texts are gone');
  }, 120_000);

  it('a frozen process does not count as waiting, so no process is refused until it resumes', async () => {
    const [one, two] = [await start('one', 'a', 'b'), await start('two', 'b', 'a')];
    one.waitNow();
    await until(() => one.isPublished(), 'the first process waits');
    two.waitNow();
    await until(() => two.isPublished(), 'the second process waits');
    one.process.kill('SIGSTOP');
    await untilLooked(two.text);
    expect([one.isWaiting, two.isWaiting]).toEqual([true, true]);
    one.process.kill('SIGCONT');
    const ends = [await one.end(), await two.end()];
    expect(ends.map(({ outcome }) => outcome).sort()).toEqual(['LOCK_DEADLOCK', 'done']);
  }, 120_000);

  it('a crashed process leaves a wait text that expires, and a lock that ends with its lease', async () => {
    const [one, two] = [await start('one', 'a', 'b', 8_000), await start('two', 'b', 'a')];
    one.waitNow();
    await until(() => one.isPublished(), 'the first process waits');
    two.waitNow();
    await until(() => two.isPublished(), 'the second process waits');
    one.process.kill('SIGKILL');
    expect((await two.end()).outcome).toBe('done');
    expect(await one.isPublished()).toBe(false);
  }, 120_000);
});

describe('applications in a deadlock', () => {
  const managers: LockManager[] = [];
  afterEach(async () => {
    for (const manager of managers.splice(0)) await manager.stop();
  });

  async function start(instance: string, options: RedisLockProviderOptions) {
    const log: string[] = [];
    const say = (message: string) => void log.push(message);
    const manager = new LockManager({
      ...{ instance, shutdownGrace: 0, logger: { debug: say, warn: say, error: say } },
      providers: { main: new RedisLockProvider(options) },
    });
    managers.push(manager);
    await manager.start();
    return { manager, log };
  }

  /** Both managers hold one of the keys, and wait for the other key. */
  async function cross(one: LockManager, other: LockManager) {
    const held = [await one.acquire('a', { lease: '10m' }), await other.acquire('b', { lease: '10m' })] as const;
    const wait = { wait: '60s', lease: '10m' } as const;
    const waits = [
      held[0].run(() => one.withLock('b', () => 'done', wait)),
      held[1].run(() => other.withLock('a', () => 'done', wait)),
    ];
    // Releases the outer lock when the inner call ends, as a decorated method does.
    const ends = waits.map(async (waiting, index) => {
      const outcome = await waiting.catch((error: unknown) => error);
      await held[index]?.release();
      return outcome;
    });
    return {
      ends,
      texts: held.map(({ holder, provider }) => layout.textOf('waits', `${instanceIdOf(holder)}:${provider}`)),
    };
  }

  it.each([IOREDIS, NODE_REDIS])(
    'is detected on a Cluster whose keys are on different servers, with %s',
    async (library) => {
      const cluster = await startRedisCluster({ nodeTimeout: 15_000 });
      try {
        const options = { ...library.cluster(cluster.addresses), commandTimeout: '20s' } as const;
        const [one, two] = [await start('one', options), await start('two', options)];
        const { ends } = await cross(one.manager, two.manager);
        const outcomes = await Promise.all(ends);
        expect(outcomes.filter((outcome) => outcome === 'done')).toHaveLength(1);
        expect(outcomes.filter((outcome) => outcome instanceof LockDeadlockError)).toHaveLength(1);
        for (const manager of managers.splice(0)) await manager.stop();
      } finally {
        await cluster.stop();
      }
    },
    120_000,
  );

  it('is detected for a call with several keys, when the server has granted the first ones and queued the next', async () => {
    const [one, two] = [await start('one', { url: redis.server.url }), await start('two', { url: redis.server.url })];
    const outer = await one.manager.acquire('c', { lease: '10m' });
    const several = two.manager.acquire(['a', 'b', 'c'], { wait: '60s', lease: '10m' });
    await until(async () => (await redis.admin.exists(layout.lockOf('b'))) === 1, 'the first keys are granted');
    const nested = outer.run(() => one.manager.acquire('a', { wait: '60s', lease: '10m' }));
    const outcomes = [
      several.catch((error: unknown) => error),
      nested.catch(async (error: unknown) => (await outer.release(), error)),
    ];
    const [first, second] = await Promise.all([outcomes[0], Promise.race(outcomes).then(() => outcomes[1])]);
    expect([first, second].filter((outcome) => outcome instanceof LockDeadlockError)).toHaveLength(1);
  }, 60_000);

  it('is not detected while one application is cut off, logs nothing about it, and is detected later', async () => {
    const proxy = await startTcpProxy(redis.server.port);
    const shaky = await start('shaky', { url: `redis://127.0.0.1:${proxy.port}` });
    const steady = await start('steady', { url: redis.server.url });
    const { ends, texts } = await cross(shaky.manager, steady.manager);
    const settled: unknown[] = [];
    for (const end of ends) void end.then((outcome) => settled.push(outcome));
    await until(async () => (await redis.admin.exists(...texts)) === 2, 'both applications wait');
    proxy.refuse();
    await untilLooked(texts[1]!);
    expect(settled).toEqual([]);
    const logged = [...shaky.log, ...steady.log].filter((line) => !line.includes('elsewhere'));
    expect(logged.filter((line) => /cycle|wait:|refused/.test(line))).toEqual([]);
    expect(logged.length).toBeLessThan(5);
    proxy.heal();
    const outcomes = await Promise.all(ends);
    expect(outcomes.filter((outcome) => outcome === 'done')).toHaveLength(1);
    expect(outcomes.filter((outcome) => outcome instanceof LockDeadlockError)).toHaveLength(1);
    for (const { manager } of [shaky, steady]) await manager.stop();
    await proxy.close();
  }, 120_000);
});

describe('a lookup of the holders of a key', () => {
  let one: Awaited<ReturnType<typeof startBackend>>;
  let two: Awaited<ReturnType<typeof startBackend>>;
  beforeEach(async () => {
    one = await startBackend({ url: redis.server.url });
    two = await startBackend({ url: redis.server.url });
  });
  afterEach(async () => {
    await one.backend.close();
    await two.backend.close();
  });
  const look = async (key: string) => {
    const seen = await one.backend.waits.holders(key, 64);
    return seen.map(({ id, mode }) => `${mode} ${id}`).sort();
  };

  it('finds the holder in every state of a lock', async () => {
    const plain = granted(await one.backend.acquire(request('k')));
    expect(await look('k')).toEqual([`exclusive ${plain.holder}`]);
    const next = request('k');
    const waiting = two.backend.acquire(next);
    await untilWaiting(two);
    expect(await look('k')).toEqual([`exclusive ${plain.holder}`]);
    await one.backend.release(plain, RELEASE);
    // The handoff may not be confirmed yet.
    expect(await look('k')).toEqual([`exclusive ${next.id}`]);
    await two.backend.release(granted(await waiting), RELEASE);
    expect(await look('k')).toEqual([]);
    const kept = granted(await one.backend.acquire(request('m', { minHold: 30_000 })));
    expect(await look('m')).toEqual([`exclusive ${kept.holder}`]);
    await one.backend.release(kept, { keepFor: 30_000, failed: false });
    expect(await look('m')).toEqual([]);
  });

  it('returns at most 64 readers, and none for a foreign value', async () => {
    const readers = await Promise.all(
      Array.from({ length: 70 }, async () => granted(await one.backend.acquire(request('r', { mode: 'shared' })))),
    );
    const seen = await look('r');
    expect(seen).toHaveLength(64);
    const ids = new Set(readers.map(({ holder }) => `shared ${holder}`));
    expect(seen.every((each) => ids.has(each))).toBe(true);
    await redis.admin.set(layout.lockOf('foreign'), 'p0000000000000000not a holder');
    expect(await look('foreign')).toEqual([]);
  });
});
