import { expect } from '@jest/globals';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { StoredRecord } from '../../lib/api/lock-provider.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import type { RedisBackend } from '../../lib/providers/redis/redis-backend.js';
import { startRedisSentinels } from '../servers/redis-sentinels.js';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import { granted, redisForTests, RELEASE, request, startBackend, twoProcesses, until } from './seam.js';

const DAY = 86_400_000;

async function namesIn({ records }: RedisBackend): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of records.list()) names.push(name);
  return names.sort();
}

const valueOf = async (answer: Promise<StoredRecord>) => (await answer).value;

describe.each([IOREDIS, NODE_REDIS])('records on one server, with %s', (library) => {
  const redis = redisForTests();
  const processes = twoProcesses(redis, library);
  const layout = new KeyLayout('lock');

  it('a record is a string in the slot of its name, kept for 400 days after each write but not after a read', async () => {
    const { backend } = processes.steady;
    const key = layout.recordOf('job');
    const left = () => redis.admin.pttl(key);
    await backend.records.replace('job', null, 'a');
    expect(key).toBe(layout.lockOf('job').replace(/:job$/, 'record:job'));
    expect(await redis.admin.get(key)).toBe('a');
    expect(await left()).toBeGreaterThan(399 * DAY);
    await redis.admin.pexpire(key, DAY);
    await backend.records.read('job');
    expect(await left()).toBeLessThanOrEqual(DAY);
    // Also if the value is already there, or another one is: WAIT covers only writes of its own connection.
    for (const [expected, next] of [
      ['a', 'a'],
      ['gone', 'a'],
      ['gone', 'b'],
    ] as const) {
      await redis.admin.pexpire(key, DAY);
      expect(await valueOf(backend.records.replace('job', expected, next))).toBe('a');
      expect(await left()).toBeGreaterThan(399 * DAY);
    }
  });

  it('operations of one tick travel in one call, and each gets its own reply', async () => {
    const { records } = processes.steady.backend;
    await redis.admin.lpush(layout.recordOf('other type'), 'x');
    await records.replace('b', null, 'b');
    await redis.admin.config('RESETSTAT');
    const answers = await Promise.allSettled([
      records.read('a'),
      records.replace('a', null, '1'),
      records.replace('a', null, '2'),
      records.read('other type'),
      records.replace('a', '1', '3'),
      records.read('b'),
    ]);
    const values = answers.map((answer) => (answer.status === 'fulfilled' ? answer.value.value : answer.status));
    expect(values).toEqual([null, '1', '1', 'rejected', '3', 'b']);
    expect(await redis.admin.info('commandstats')).toMatch(/cmdstat_evalsha:calls=1,/);
    expect(answers[3]).toMatchObject({
      reason: expect.objectContaining({
        message: expect.stringMatching(
          /^Record "other type" of provider "redis" is not available: Redis refuses it \(.*WRONGTYPE/,
        ),
      }),
    });
  });

  it('records work after the server has forgotten the script', async () => {
    const { records } = processes.steady.backend;
    await records.replace('job', null, 'a');
    await redis.admin.script('FLUSH');
    expect(await valueOf(records.replace('job', 'a', 'b'))).toBe('b');
  });

  it('a client library does not resend a write with an unknown outcome', async () => {
    const { shaky, steady, proxy } = processes;
    await shaky.backend.records.read('job');
    proxy.loseRequests();
    const write = shaky.backend.records.replace('job', null, 'a');
    await expect(write).rejects.toThrow(LockUnavailableError);
    proxy.heal();
    await until(() => shaky.events.some(({ type }) => type === 'recovered'), 'the connection is back');
    await shaky.backend.records.read('another');
    expect(await valueOf(steady.backend.records.read('job'))).toBeNull();
  });

  it('a list fails if the provider reconnects while it is read', async () => {
    const { shaky, proxy } = processes;
    for (let job = 0; job < 100; job += 1) await shaky.backend.records.replace(`job:${job}`, null, 'a');
    const names = shaky.backend.records.list()[Symbol.asyncIterator]();
    await names.next();
    proxy.cut();
    await until(() => shaky.events.some(({ type }) => type === 'recovered'), 'the connection is back');
    const rest = async () => {
      while ((await names.next()).done !== true);
    };
    await expect(rest()).rejects.toThrow(LockUnavailableError);
  });
});

it('records are written to the master that Sentinel names', async () => {
  const redis = await startRedisSentinels();
  const { backend } = await startBackend({
    ...IOREDIS.sentinel(redis.options),
    waitReplicas: 1,
    commandTimeout: '10s',
  });
  const lock = granted(await backend.acquire(request('job')));
  expect(await valueOf(backend.records.replace('job', null, 'a'))).toBe('a');
  expect(await valueOf(backend.records.read('job'))).toBe('a');
  expect(await namesIn(backend)).toEqual(['job']);
  expect(await backend.release(lock, RELEASE)).toBe('released');
  await backend.close();
  await redis.stop();
}, 60_000);
