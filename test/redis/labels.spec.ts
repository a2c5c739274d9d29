import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { granted, redisForTests, request, startBackend, until, untilWaiting } from './seam.js';

const redis = redisForTests();
const layout = new KeyLayout('lock');
const LOCK = layout.lockOf('a');
const LABEL = layout.textOf('label', 'a');
const RELEASE = { keepFor: 0, failed: false };

const start = () => startBackend({ url: redis.server.url });
const isWritten = (text: string) =>
  until(async () => (await redis.admin.get(LABEL))?.endsWith(text) === true, 'the label is written');

describe('the label of a lock', () => {
  it("is a key in the hash slot of the lock, contains the request's id, and expires with the lease", async () => {
    const { backend } = await start();
    const held = granted(await backend.acquire(request('a')));
    backend.label(held.request, '- Orders.pay', 5_000.5);
    await isWritten('Orders.pay');
    expect(await redis.admin.get(LABEL)).toBe(`${held.holder}- Orders.pay`);
    const left = await redis.admin.pttl(LABEL);
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(5_001);
    // A Cluster hashes the first pair of braces.
    expect(/\{(.*?)\}/.exec(LABEL)?.[1]).toBe(/\{(.*?)\}/.exec(LOCK)?.[1]);
    expect(await backend.labelOf('a')).toBe('- Orders.pay');
  });

  it('is stale after the release, which does not delete it, and while the next holder has no label', async () => {
    const [{ backend: ann }, { backend: bob }] = [await start(), await start()];
    const first = granted(await ann.acquire(request('a')));
    ann.label(first.request, 'of ann', 30_000);
    await isWritten('of ann');
    expect(await bob.labelOf('a')).toBe('of ann');
    expect(await ann.release(first, RELEASE)).toBe('released');
    expect(await redis.admin.exists(LABEL)).toBe(1);
    expect(await bob.labelOf('a')).toBeNull();
    const second = granted(await bob.acquire(request('a')));
    expect(await ann.labelOf('a')).toBeNull();
    bob.label(second.request, 'of bob', 30_000);
    await isWritten('of bob');
    expect(await ann.labelOf('a')).toBe('of bob');
    // A late label leaves the lock without one until the holder renews, but never with a wrong one.
    ann.label(first.request, 'late', 30_000);
    await isWritten('late');
    expect(await ann.labelOf('a')).toBeNull();
  });

  it('belongs to the current holder: with waiters, with minHold, and after a handoff', async () => {
    const [one, two] = [await start(), await start()];
    const first = granted(await one.backend.acquire(request('a', { minHold: 1 })));
    one.backend.label(first.request, 'first', 30_000);
    await isWritten('first');
    expect(await two.backend.labelOf('a')).toBe('first');
    const waiting = two.backend.acquire(request('a'));
    await untilWaiting(two);
    expect(await two.backend.labelOf('a')).toBe('first');
    await one.backend.release(first, RELEASE);
    const second = granted(await waiting);
    two.backend.label(second.request, 'second', 30_000);
    await isWritten('second');
    expect(await one.backend.labelOf('a')).toBe('second');
    expect(await two.backend.renew(second, 30_000)).toMatchObject({});
    expect(await one.backend.labelOf('a')).toBe('second');
  });

  it.each([
    ['retained', { minHold: 30_000 }, 30_000],
    ['freed', {}, 0],
  ])('is null for a %s lock', async (_, terms, keepFor) => {
    const { backend } = await start();
    const held = granted(await backend.acquire(request('a', terms)));
    backend.label(held.request, 'before', 30_000);
    await isWritten('before');
    await backend.release(held, { keepFor, failed: false });
    expect(await backend.labelOf('a')).toBeNull();
  });

  it.each([
    ['shared', { mode: 'shared' } as const],
    ['limited', { mode: 'limited', limited: { weight: 1, limit: 2 } } as const],
  ])('is null for a %s lock, whatever is written', async (_, terms) => {
    const { backend } = await start();
    const held = granted(await backend.acquire(request('a', terms)));
    backend.label(held.request, 'one of them', 30_000);
    await isWritten('one of them');
    expect(await backend.labelOf('a')).toBeNull();
  });

  it('is null if another client has overwritten it, or the lock', async () => {
    const { backend } = await start();
    const held = granted(await backend.acquire(request('a')));
    for (const text of ['', held.holder.slice(1), `${'f'.repeat(32)}00-x`, ` ${held.holder}x`, '\u0000']) {
      await redis.admin.set(LABEL, text);
      expect(await backend.labelOf('a')).toBeNull();
    }
    await redis.admin.del(LABEL);
    await redis.admin.hset(LABEL, 'a', 'b');
    await expect(backend.labelOf('a')).rejects.toThrow('WRONGTYPE');
    expect(await backend.renew(held, 30_000)).toMatchObject({});
    await redis.admin.del(LABEL);
    backend.label(held.request, 'mine', 30_000);
    await isWritten('mine');
    for (const value of ['x', '', 'p', `x${'1'.repeat(16)}${held.holder}`, `k${'1'.repeat(16)}${held.holder}`]) {
      await redis.admin.set(LOCK, value);
      expect(await backend.labelOf('a')).toBeNull();
    }
  });

  it('does not appear in a list, and does not survive a forced release', async () => {
    const { backend } = await start();
    const held = granted(await backend.acquire(request('a')));
    backend.label(held.request, 'x', 30_000);
    await isWritten('x');
    const keys: string[] = [];
    for await (const { key } of backend.list({ prefix: '' })) keys.push(key);
    expect(keys).toEqual(['a']);
    expect(await backend.forceRelease('a')).toBe(true);
    expect(await backend.labelOf('a')).toBeNull();
    expect(await backend.inspect('a')).toBeNull();
  });

  it('does not affect the lock if Redis is down or refuses it', async () => {
    const { backend, events } = await start();
    const held = granted(await backend.acquire(request('a')));
    await redis.admin.config('SET', 'maxmemory', '1');
    try {
      backend.label(held.request, 'x', 30_000);
      expect(await backend.renew(held, 30_000)).toMatchObject({});
      expect(await redis.admin.exists(LABEL)).toBe(0);
    } finally {
      await redis.admin.config('SET', 'maxmemory', '0');
    }
    expect(events).toEqual([]);
    await backend.close();
    backend.label(held.request, 'x', 30_000);
    await expect(backend.labelOf('a')).rejects.toThrow();
  });
});
