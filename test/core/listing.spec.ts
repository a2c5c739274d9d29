import { LockConfigError } from '../../lib/api/errors.js';
import type { LockInfo } from '../../lib/api/lock-info.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { timeOfToken } from '../../lib/core/toolkit/fencing-token.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { DistantBackend, DistantProvider } from '../contract/memory-server.js';
import { startManager } from './manager-rig.js';

/** Stops the manager even though locks are held. */
async function stop(locks: LockManager, clock: FakeClock): Promise<void> {
  const stopping = locks.stop();
  await clock.advance(1);
  await stopping;
}

async function listOf(locks: LockManager, prefix?: string): Promise<LockInfo[]> {
  const listed: LockInfo[] = [];
  for await (const lock of locks.admin.list({ prefix })) listed.push(lock);
  return listed;
}

it('a listing names each holder by the instance of its application', async () => {
  const store = new MemoryStore();
  const clock = new FakeClock();
  const provider = new MemoryLockProvider({ store });
  const ann = await startManager({ provider, instance: 'pod-ann', clock, shutdownGrace: 0 });
  const bob = await startManager({ provider, instance: 'pod-bob', clock, shutdownGrace: 0 });
  await ann.locks.acquire('order:1', { mode: 'shared' });
  await bob.locks.acquire('order:1', { mode: 'shared' });
  await bob.locks.acquire('order:2');

  const [first, second] = await listOf(ann.locks);
  expect(first).toMatchObject({ key: 'order:1', mode: 'shared', holders: 2, instances: ['pod-ann', 'pod-bob'] });
  expect(second).toMatchObject({ key: 'order:2', mode: 'exclusive', holders: 1, instances: ['pod-bob'] });
  expect(second?.since).toEqual(new Date(clock.wallTime()));
  expect(await listOf(ann.locks, 'order:2')).toEqual([second]);

  await bob.locks.acquire('job', { minHold: '1h' });
  await stop(bob.locks, clock);
  expect(await listOf(ann.locks, 'job')).toMatchObject([{ state: 'retained', instances: [] }]);
  await stop(ann.locks, clock);
});

it('a listing ends even if a key is released and acquired again at each step', async () => {
  const { locks } = await startManager();
  let lock = await locks.acquire('a');
  const other = await locks.acquire('b');
  const keys: string[] = [];
  for await (const { key } of locks.admin.list()) {
    keys.push(key);
    await lock.release();
    lock = await locks.acquire('a');
    if (keys.length === 10) break;
  }
  expect(keys).toEqual(['a', 'b']);
  await lock.release();
  await other.release();
  await locks.stop();
});

it('an instance is named by host and process id by default', async () => {
  const { locks, clock } = await startManager({ shutdownGrace: 0 });
  await locks.acquire('order:1');
  const [lock] = await listOf(locks);
  expect(lock?.instances).toEqual([expect.stringMatching(new RegExp(`^.+:${process.pid}$`))]);
  await stop(locks, clock);
});

it.each(['', 'a\nb', 'é', 'x'.repeat(101)])('the instance %j is rejected', (instance) => {
  const make = () => new LockManager({ providers: { main: new MemoryLockProvider() }, instance });
  expect(make).toThrow(LockConfigError);
  expect(make).toThrow('Option "instance"');
});

describe('the record of an instance', () => {
  class Recording extends DistantBackend {
    static readonly times: number[] = [];
    static answer = () => Promise.resolve();
    register(): Promise<void> {
      Recording.times.push(this.surrounding.clock.now());
      return Recording.answer();
    }
  }

  beforeEach(() => {
    Recording.times.length = 0;
    Recording.answer = () => Promise.resolve();
  });

  it('is written after the start, after each outage and every hour, but not after the stop', async () => {
    const provider = new DistantProvider(new MemoryStore(), Recording);
    const { locks, clock } = await startManager({ provider });
    const start = clock.now();
    const written = () => Recording.times.map((time) => (time - start) / 60_000);
    expect(written()).toEqual([0]);
    await clock.advance(60 * 60_000);
    expect(written()).toEqual([0, 60]);
    await clock.advance(30 * 60_000);
    provider.cable.cutOff();
    provider.cable.restore();
    expect(written()).toEqual([0, 60, 90]);
    await clock.advance(59 * 60_000);
    expect(written()).toHaveLength(3);
    await clock.advance(60_000);
    expect(written()).toEqual([0, 60, 90, 150]);
    await locks.stop();
    await clock.advance(3 * 60 * 60_000);
    expect(written()).toHaveLength(4);
  });

  const refused = new Error('The server refuses it.');

  it.each<[string, () => Promise<void>]>([
    ['rejects', () => Promise.reject(refused)],
    [
      'throws',
      () => {
        throw refused;
      },
    ],
  ])('is retried a minute after the backend %s, even after a failed start', async (_, refuse) => {
    const provider = new DistantProvider(new MemoryStore(), Recording);
    provider.cable.cutOff();
    Recording.answer = refuse;
    const { locks, clock } = await startManager({ provider, failFast: false });
    expect(Recording.times).toHaveLength(1);
    await clock.advance(60_000);
    expect(Recording.times).toHaveLength(2);
    Recording.answer = () => Promise.resolve();
    await clock.advance(60_000);
    expect(Recording.times).toHaveLength(3);
    await clock.advance(59 * 60_000);
    expect(Recording.times).toHaveLength(3);
    await locks.stop();
  });
});

it('timeOfToken() derives the time from a timestamp token, but not from a counter', () => {
  const now = Date.UTC(2026, 0, 1);
  expect(timeOfToken(BigInt(now) * 1000n - 5_000_000n, now)).toEqual(new Date(now - 5_000));
  expect(timeOfToken(BigInt(now) * 1000n + 5_000_000n, now)).toBeNull();
});
