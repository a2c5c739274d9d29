import { expect } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { Redis } from 'ioredis';
import { silentLogger } from '../../lib/api/logger.js';
import { FakeClock } from '../../lib/testing/index.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startRedisCluster } from '../servers/redis-cluster.js';
import { IOREDIS, NODE_REDIS, NODE_REDIS_5 } from './client-libraries.js';
import {
  granted,
  INSTANCE,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  until,
  untilWaiting,
  waitersAre,
} from './seam.js';

// Returns the rules that docs/providers/redis.md tells users to copy, for one server or for a Cluster.
async function documentedRules(topology: 'server' | 'cluster'): Promise<string[]> {
  const page = await readFile(new URL('../../docs/providers/redis.md', import.meta.url), 'utf8');
  const lines = [...page.matchAll(/^ACL SETUSER locks on >secret (.+)$/gm)].map(([, rules = '']) => rules);
  const rules = lines.find((line) => line.includes('cluster|slots') === (topology === 'cluster'));
  if (rules === undefined) throw new Error('docs/providers/redis.md does not list the permissions.');
  return rules.split(' ');
}

async function keysOf({ backend }: StartedBackend): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of backend.list({ prefix: '' })) keys.push(key);
  return keys;
}

async function recordsOf({ backend: { records } }: StartedBackend): Promise<unknown[]> {
  const answers = [await records.replace('k', null, 'a'), await records.replace('k', 'a', 'b')];
  const found: unknown[] = answers.map(({ value }) => value);
  for await (const record of records.list()) found.push(record);
  return found;
}

/** Publishes what this process's lock holders wait for, and reads it back. */
async function publishedWaits({ backend: { waits } }: StartedBackend, key: string): Promise<unknown[]> {
  const seen: unknown[] = [typeof (await waits.serverTime())];
  for (const text of ['waits', null]) {
    await waits.publish(text, 30_000);
    seen.push(await waits.read(INSTANCE.id), (await waits.holders(key, 64)).length);
  }
  return seen;
}

/** Counts how many times the ACL has denied a channel. */
async function deniedChannels(admin: Redis): Promise<number> {
  const entries = (await admin.call('ACL', ['LOG'])) as ['count', number, 'reason', string][];
  return entries.reduce((sum, [, count, , reason]) => sum + (reason === 'channel' ? count : 0), 0);
}

describe.each([IOREDIS, NODE_REDIS, NODE_REDIS_5])('with the documented permissions, using %s', (library) => {
  let server: RedisServer;
  let admin: Redis;

  beforeAll(async () => {
    server = await startRedisServer();
    admin = new Redis(server.url);
    await admin.call('ACL', ['SETUSER', 'locks', 'on', '>secret', ...(await documentedRules('server'))]);
  });
  afterAll(async () => {
    admin.disconnect();
    await server.stop();
  });

  it('locks, handoff, readers, renewal, retention, inspection, list, forced release and diagnostics work', async () => {
    const url = `redis://locks:secret@127.0.0.1:${server.port}`;
    const one = await startBackend(library.server(url));
    const two = await startBackend(library.server(url));
    const holder = granted(await one.backend.acquire(request('k')));
    const waiter = two.backend.acquire(request('k'));
    await waitersAre(one.backend, 'k', 1);
    expect(await one.backend.renew(holder, 30_000)).toMatchObject({});
    one.backend.label(holder.request, 'a label', 30_000);
    await until(async () => (await two.backend.labelOf('k')) === 'a label', 'the label is written');
    await one.backend.release(holder, RELEASE);
    const next = granted(await waiter);
    expect(await publishedWaits(one, 'k')).toEqual(['number', 'waits', 1, null, 1]);
    expect(await two.backend.renew(next, 30_000)).toMatchObject({});
    const reader = two.backend.acquire(request('k', { mode: 'shared' }));
    await waitersAre(one.backend, 'k', 1);
    await two.backend.release(next, RELEASE);
    await two.backend.release(granted(await reader), RELEASE);
    const retained = granted(await one.backend.acquire(request('k', { minHold: 5_000 })));
    await one.backend.release(retained, { keepFor: 4_000, failed: false });
    await one.backend.register();
    expect(await keysOf(one)).toEqual(['k']);
    expect(await recordsOf(one)).toEqual(['a', 'b', { name: 'k', value: 'b' }]);
    expect(await one.backend.forceRelease('k')).toBe(true);
    expect((await one.backend.diagnose()).map(({ message }) => message)).toEqual([expect.stringContaining('AOF')]);
    const log = (await admin.call('ACL', ['LOG'])) as unknown[];
    expect(log).toEqual([]);
    await one.backend.close();
    await two.backend.close();
  });

  it('a reconnect works, including CLIENT KILL of the lost connection', async () => {
    const { backend, events } = await startBackend(library.server(`redis://locks:secret@127.0.0.1:${server.port}`));
    const grant = granted(await backend.acquire(request('k')));
    await admin.call('CLIENT', ['KILL', 'USER', 'locks']);
    await until(() => events.some(({ type }) => type === 'recovered'), 'the connection is back');
    expect(await backend.release(grant, RELEASE)).toBe('released');
    expect(await admin.call('ACL', ['LOG'])).toEqual([]);
    await backend.close();
  });

  it("a user without SCAN can't list locks, and can do everything else", async () => {
    const rules = (await documentedRules('server')).filter((rule) => rule !== '+scan');
    await admin.call('ACL', ['SETUSER', 'blind', 'on', '>secret', ...rules]);
    const started = await startBackend(library.server(`redis://blind:secret@127.0.0.1:${server.port}`));
    const grant = granted(await started.backend.acquire(request('k')));
    await expect(keysOf(started)).rejects.toThrow(/the Redis user lacks a permission \(NOPERM .*'scan'/);
    expect(await started.backend.release(grant, RELEASE)).toBe('released');
    await admin.call('ACL', ['LOG', 'RESET']);
    await started.backend.close();
  });

  it('a user without SUBSCRIBE gets a lock only when no other process waits for it, and is warned', async () => {
    const rules = (await documentedRules('server')).filter((rule) => rule !== '+subscribe');
    await admin.call('ACL', ['SETUSER', 'deaf', 'on', '>secret', ...rules]);
    const warnings: string[] = [];
    const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
    const deaf = await startBackend(library.server(`redis://deaf:secret@127.0.0.1:${server.port}`), { logger });
    const other = await startBackend({ url: server.url });
    const holder = granted(await other.backend.acquire(request('k')));
    const waiter = deaf.backend.acquire(request('k'));
    await untilWaiting(deaf);
    const second = other.backend.acquire(request('k'));
    await untilWaiting(other);
    await other.backend.release(holder, RELEASE);
    await other.backend.release(granted(await second), RELEASE);
    await deaf.backend.release(granted(await waiter), RELEASE);
    expect(warnings).toEqual([
      expect.stringMatching(/only gets locks no other process is waiting for. Grant SUBSCRIBE/),
    ]);
    expect(await deaf.backend.diagnose()).toContainEqual({
      severity: 'error',
      message: expect.stringMatching(/denies this user permissions that locks need on .* Grant \+subscribe\./),
    });
    await admin.call('ACL', ['LOG', 'RESET']);
    await deaf.backend.close();
    await other.backend.close();
  });

  it('a user without its channel retries the subscription every second, is warned once, and receives handoffs once it may subscribe', async () => {
    const rules = (await documentedRules('server')).filter((rule) => rule !== '&lock:*');
    await admin.call('ACL', ['SETUSER', 'late', 'on', '>secret', ...rules]);
    const warnings: string[] = [];
    const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
    const time = new FakeClock();
    const options = { ...library.server(`redis://late:secret@127.0.0.1:${server.port}`), commandTimeout: '1h' };
    const late = await startBackend(options, { clock: time, logger });
    const connections = async () =>
      [...String(await admin.call('CLIENT', ['LIST'])).matchAll(/^id=(\d+) .* user=late /gm)].map(([, id]) => id);
    const untilPassed = (condition: () => Promise<boolean>, what: string) =>
      until(async () => {
        await time.advance(1_000);
        return condition();
      }, what);
    await untilPassed(async () => (await deniedChannels(admin)) >= 3, 'the channel was denied three times');
    const before = await connections();
    await admin.call('ACL', ['SETUSER', 'late', '&lock:*']);
    await untilPassed(async () => (await admin.pubsub('CHANNELS')).length === 1, 'the process listens');
    const other = await startBackend({ url: server.url });
    const holder = granted(await other.backend.acquire(request('k')));
    const waiter = late.backend.acquire(request('k'));
    await untilWaiting(late);
    await other.backend.release(holder, RELEASE);
    // The process's clock stands still, so only the message can tell it about the grant.
    await late.backend.release(granted(await waiter), RELEASE);
    expect(await connections()).toEqual(before);
    expect(warnings).toEqual([expect.stringMatching(/Grant SUBSCRIBE on "lock/)]);
    await admin.call('ACL', ['LOG', 'RESET']);
    await late.backend.close();
    await other.backend.close();
  });

  it('other keys, channels and commands are denied', async () => {
    const locks = new Redis(`redis://locks:secret@127.0.0.1:${server.port}`);
    for (const [command, ...args] of [
      ['GET', 'session:1'],
      ['FLUSHALL'],
      ['KEYS', '*'],
      ['CONFIG', 'GET', '*'],
      ['PUBLISH', 'news', 'x'],
      ['EVAL', "return redis.call('GET', 'session:1')", '0'],
    ] as [string, ...string[]][]) {
      await expect(locks.call(command, args)).rejects.toThrow(/NOPERM|permission|can't access/i);
    }
    locks.disconnect();
  });
});

it.each([IOREDIS, NODE_REDIS])(
  'a Cluster needs no more than its documented permissions, with %s',
  async (library) => {
    const cluster = await startRedisCluster({ replicas: 1, nodeTimeout: 5_000 });
    const nodes = [...cluster.masters, ...cluster.replicas];
    for (const { admin } of nodes) {
      await admin.call('ACL', ['SETUSER', 'locks', 'on', '>secret', ...(await documentedRules('cluster'))]);
    }
    const options = {
      ...library.cluster(cluster.addresses, { credentials: { username: 'locks', password: 'secret' } }),
      waitReplicas: 1,
      commandTimeout: '20s',
    };
    const one = await startBackend(options);
    const two = await startBackend(options);
    const holder = granted(await one.backend.acquire(request('k')));
    const waiter = two.backend.acquire(request('k'));
    await untilWaiting(two);
    await one.backend.release(holder, RELEASE);
    const next = granted(await waiter);
    expect(await publishedWaits(one, 'k')).toEqual(['number', 'waits', 1, null, 1]);
    expect(await two.backend.renew(next, 30_000)).toMatchObject({});
    expect(await two.backend.release(next, RELEASE)).toBe('released');
    await one.backend.register();
    granted(await one.backend.acquire(request('listed')));
    expect(await keysOf(two)).toEqual(['listed']);
    expect(await recordsOf(two)).toEqual(['a', 'b', { name: 'k', value: 'b' }]);
    expect((await one.backend.diagnose()).filter(({ severity }) => severity === 'error')).toEqual([]);
    // Other commands that a client library sends may be refused. Locks don't need them.
    const refused = await Promise.all(nodes.map(async ({ admin }) => await admin.call('ACL', ['LOG'])));
    expect(JSON.stringify(refused)).not.toContain('"lua"');
    await one.backend.close();
    await two.backend.close();
    await cluster.stop();
  },
  120_000,
);
