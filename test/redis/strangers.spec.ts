import { expect } from '@jest/globals';
import fc from 'fast-check';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { exploration } from '../exploration.js';
import {
  callScript,
  COUNTER,
  HERE,
  LOCK,
  type Operation,
  THERE,
  granted,
  isSettled,
  leave,
  redisForTests,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  startWithFakeClock,
  untilWaiting,
} from './seam.js';

const random = systemRandom();
const layout = new KeyLayout('lock');
/** Values that resemble each state of a lock, and an application's own strings. */
const TEXTS = [
  ...[
    'hello',
    '',
    '42',
    '{"a":1}',
    'session:42',
    'config',
    'cart',
    'pink',
    'ok',
    'order 1 2',
    'list of things',
    'member',
  ],
  ...['s', 'l', 'k', 'c', 'o', 'p', 'l 1 2', `s${'1'.repeat(17)}`, `l${'1'.repeat(16)}5`, `o${'1'.repeat(16)}x 1`],
  ...[`p${'1'.repeat(16)}`, `c${'1'.repeat(16)}x`, `c${'1'.repeat(29)}`, `c${'1'.repeat(16)}${'0'.repeat(12)}x y`],
];

describe('a stranger', () => {
  const redis = redisForTests();

  /** Returns the full content of a key. */
  const contentOf = async (key: string) => [
    ((await redis.admin.dumpBuffer(key)) as Buffer | null)?.toString('hex'),
    await redis.admin.pexpiretime(key),
  ];
  const contentsOf = (keys: readonly string[]) => Promise.all(keys.map(contentOf));

  describe('that publishes on the channel of a process', () => {
    /** Resolves when the process has acted on all messages published before. */
    async function heard({ backend, events }: StartedBackend, steady: StartedBackend): Promise<void> {
      const held = granted(await steady.backend.acquire(request('barrier')));
      const waiter = backend.acquire(request('barrier'));
      const before = events.filter(({ type }) => type === 'waiting').length;
      await untilWaiting({ backend, events }, before + 1);
      // The victim's clock stands still, so only the next message tells it about its grant. Messages on a channel
      // arrive in order.
      await steady.backend.release(held, RELEASE);
      expect(await backend.release(granted(await waiter), RELEASE)).toBe('released');
      await backend.inspect('nothing');
    }

    const name = fc.oneof(
      fc.constantFrom('session:42', 'cart:7', 'lock', 'lock:', 'lock:{1}', 'lock:{1}k', 'lock:{16}:k', 'LOCK:{1}:k'),
      fc.constantFrom(
        'lock2:{1}:k',
        'xlock:{1}:k',
        'lock:redlock:k',
        'lock:{1}:cart}q',
        'lock:{1}:cart}r',
        'lock:{1}:cart',
      ),
      fc.constantFrom('lock:{1}:list}q', 'lock:{1}:list}r', 'lock:{1}:list', 'lock:{5}:set', 'lock:{0}instance:ab'),
    );
    const text = fc.oneof(fc.constantFrom(...TEXTS), fc.string({ maxLength: 40 }));
    const value = fc.record({ type: fc.constantFrom('string', 'list', 'set', 'hash', 'zset'), text });
    const notice = fc.record({
      letter: fc.constantFrom('grant', 'grant', 'grant', 'k', 'text'),
      lock: fc.oneof(name, fc.constant('other:{1}:k'), text),
      holder: fc.constantFrom('abcdef', 'ab'.repeat(16), '0123456789ab'.padEnd(32, 'f')),
      provisional: fc.constantFrom('3000', '03000', '0', '999999999999'),
      text,
    });

    const put = async (key: string, { type, text }: { readonly type: string; readonly text: string }) => {
      if (type === 'string') await redis.admin.set(key, text);
      else if (type === 'list') await redis.admin.rpush(key, text);
      else if (type === 'set') await redis.admin.sadd(key, text);
      else if (type === 'hash') await redis.admin.hset(key, 'field', text);
      else await redis.admin.zadd(key, 1, text, Date.now(), `x${text}`);
    };

    it('changes no key that no script has written, and nothing in another namespace', async () => {
      const steady = await startBackend({ url: redis.server.url });
      const victim = await startWithFakeClock({ url: redis.server.url });
      const [one, other] = (await redis.admin.pubsub('CHANNELS', 'lock:*')) as [string, string];
      await fc.assert(
        fc.asyncProperty(
          fc.uniqueArray(fc.tuple(name, value), { minLength: 3, maxLength: 10, selector: ([key]) => key }),
          fc.array(notice, { minLength: 1, maxLength: 20 }),
          async (values, notices) => {
            await redis.admin.flushall();
            for (const [key, each] of values) await put(key, each);
            // A free lock with a waiter that is live but not listening now: an inspection would remove it.
            const [seconds] = await redis.admin.time();
            await redis.admin.zadd('other:{0}seen', Number(seconds) * 1_000, THERE);
            await redis.admin.zadd('other:{1}:k}q', 1, `x${THERE}3000:${random.id()}`);
            await redis.admin.set('other:{1}:held', `c${'1'.repeat(29)}${THERE}${random.id()}`);
            const keys = [...values.map(([key]) => key), 'other:{0}seen', 'other:{1}:k}q', 'other:{1}:held'];
            const before = await contentsOf(keys);
            expect(await redis.admin.exists(...keys)).toBe(keys.length);
            for (const { letter, lock, holder, provisional, text: any } of notices) {
              const grant = `${'1'.repeat(16)}${'2'.repeat(16)}01${provisional}:${holder} ${lock}`;
              const message = letter === 'grant' ? grant : letter === 'k' ? `k${provisional}:${holder}` : any;
              for (const channel of [one, other]) await redis.admin.publish(channel, message);
            }
            await heard(victim, steady);
            expect(await contentsOf(keys)).toEqual(before);
          },
        ),
        { numRuns: exploration(30, 500) },
      );
      await Promise.all([steady.backend.close(), victim.backend.close()]);
    }, 3_600_000);

    it('grants no lock other than the one the request waits for', async () => {
      const steady = await startBackend({ url: redis.server.url });
      const victim = await startWithFakeClock({ url: redis.server.url });
      const held = granted(await steady.backend.acquire(request('k')));
      const waiting = request('k');
      const waiter = victim.backend.acquire(waiting);
      await untilWaiting(victim);
      for (const channel of await redis.admin.pubsub('CHANNELS', 'lock:*')) {
        const notice = `${'1'.repeat(16)}${'2'.repeat(16)}013000:${waiting.id} ${layout.lockOf('other')}`;
        await redis.admin.publish(String(channel), notice);
      }
      await heard(victim, steady);
      expect(await isSettled(waiter)).toBe(false);
      await leave(victim.backend, waiting);
      expect(await waiter).toBe('busy');
      await steady.backend.release(held, RELEASE);
      await Promise.all([steady.backend.close(), victim.backend.close()]);
    });
  });

  describe("whose value is at a lock's key", () => {
    it.each(TEXTS)('keeps its string, and the lock counts as busy: %j', async (text) => {
      const { backend, events, time } = await startWithFakeClock({ url: redis.server.url });
      const key = layout.lockOf('k');
      await redis.admin.set(key, text);
      const before = await contentOf(key);
      for (const [index, terms] of [
        {},
        { mode: 'shared' } as const,
        { mode: 'limited', limited: { weight: 1, limit: 2 } } as const,
        { minHold: 1_000 },
      ].entries()) {
        expect(await backend.acquire(request('k', { ...terms, wait: 0 }))).toBe('busy');
        const waiter = request('k', terms);
        const answer = backend.acquire(waiter);
        await untilWaiting({ backend, events }, index + 1);
        expect(await leave(backend, waiter)).toBe('lost');
        expect(await answer).toBe('busy');
      }
      await expect(backend.inspect('k')).rejects.toThrow(LockUnavailableError);
      await expect(backend.forceRelease('k')).rejects.toThrow('holds a value that was not written for locks');
      expect(await contentOf(key)).toEqual(before);
      const waiter = backend.acquire(request('k'));
      await untilWaiting({ backend, events }, 5);
      await redis.admin.del(key);
      await time.advance(1_000);
      expect(await backend.release(granted(await waiter), RELEASE)).toBe('released');
      await backend.close();
    });

    it.each([
      ['list', (key: string) => redis.admin.rpush(key, 'a')],
      ['hash', (key: string) => redis.admin.hset(key, 'a', 'b')],
      ['sorted set', (key: string) => redis.admin.zadd(key, 1, 'a')],
    ])('keeps its %s, and the lock is unavailable', async (_, put) => {
      const { backend } = await startBackend({ url: redis.server.url });
      const key = layout.lockOf('k');
      await put(key);
      const before = await contentOf(key);
      await expect(backend.acquire(request('k'))).rejects.toThrow(LockUnavailableError);
      await expect(backend.inspect('k')).rejects.toThrow(LockUnavailableError);
      await expect(backend.forceRelease('k')).rejects.toThrow(LockUnavailableError);
      expect(await contentOf(key)).toEqual(before);
      await backend.close();
    });
  });

  describe("whose value is at another record's key", () => {
    const run = (process: string, ...operations: Operation[]) => callScript(redis.admin, process, operations);
    const refused = expect.objectContaining({ message: expect.stringContaining('WRONGTYPE') as unknown });
    const [QUEUE, HOLDERS, SEEN] = [`${LOCK}}q`, `${LOCK}}r`, `${COUNTER}seen`];
    const [one, two]: Operation[] = [
      ['A3000', 'one', 60_000],
      ['A3000', 'two', 60_000],
    ] as const as [Operation, Operation];
    const values: [string, (key: string) => Promise<unknown>][] = [
      ['a string', (key) => redis.admin.set(key, 'hello')],
      ['a hash', (key) => redis.admin.hset(key, 'a', 'b')],
      ['a sorted set', (key) => redis.admin.zadd(key, 1, 'alice', 2, 'bob')],
      ['a sorted set that resembles records', (key) => redis.admin.zadd(key, 1, 'hello', 2, 'x0:0')],
      [
        'a sorted set with a TTL of an hour',
        async (key) => {
          await redis.admin.zadd(key, 1, 'alice', 2, 'bob');
          await redis.admin.expire(key, 3_600);
        },
      ],
    ];

    it.each(values)('keeps %s, and operations that need that record fail', async (_, put) => {
      const cases: [string, Operation[], Operation[]][] = [
        [QUEUE, [], [one]],
        [QUEUE, [one], [two]],
        [QUEUE, [['t', 'one', 60_000]], [two]],
        [QUEUE, [['m 1 2', 'one', 60_000]], [['l3000 1 1', 'two', 60_000]]],
        [HOLDERS, [], [['t', 'one', 60_000]]],
        [HOLDERS, [['m 1 2', 'one', 60_000]], [['m 1 2', 'two', 60_000]]],
        [HOLDERS, [one], [['F', '', 0]]],
        [SEEN, [one], [two]],
      ];
      for (const [key, before, asks] of cases) {
        await redis.admin.flushall();
        if (before.length > 0) await run(HERE, ...before);
        await put(key);
        const content = await contentOf(key);
        expect([key, await run(HERE, ...asks)]).toEqual([key, [refused]]);
        expect([key, await contentOf(key)]).toEqual([key, content]);
      }
    });

    it.each(values)("keeps %s at a queue's key when other operations read the queue", async (_, put) => {
      await put(QUEUE);
      const content = await contentOf(QUEUE);
      expect(await run(HERE, ['R', 'nobody', 0], ['C', 'nobody', 1])).toEqual([0, 0]);
      expect(await contentOf(QUEUE)).toEqual(content);
    });

    it.each(['hello', '', '{"a":1}', '"a"', '-', 'one', '4 apples'])(
      'keeps its string at the counter: %j',
      async (text) => {
        await redis.admin.set(COUNTER, text);
        await expect(run(HERE, one)).resolves.toEqual([refused]);
        expect(await run(HERE, one, ['B3000::5', 'two', 60_000], ['t', 'three', 60_000])).toEqual([
          refused,
          refused,
          refused,
        ]);
        expect(await redis.admin.get(COUNTER)).toBe(text);
        expect(await redis.admin.keys('*')).toEqual([COUNTER]);
      },
    );
  });
});
