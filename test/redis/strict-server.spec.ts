import { createHash } from 'node:crypto';
import { Redis } from 'ioredis';
import { LockBusyError, LockConfigError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { startRedisCluster } from '../servers/redis-cluster.js';
import { granted, redisForTests, RELEASE, request, startBackend, until, untilWaiting, waitersAre } from './seam.js';

/** The server's list of keys that scripts touched and their calls did not declare. */
const REFUSED = 'undeclared-keys';

// Prepended to each script: it may touch only the keys of its call, as on a strict server, and other keys are recorded.
const STRICT = `
local server, declared = redis, {}
for _, key in ipairs(KEYS) do declared[key] = true end
local keyless = { TIME = true, PUBLISH = true, SPUBLISH = true }
local all = { EXISTS = true, DEL = true }
local function strict(run)
  return function(command, ...)
    local name = string.upper(command)
    for place, key in ipairs({ ... }) do
      if not keyless[name] and (place == 1 or all[name]) and not declared[key] then
        server.call('RPUSH', '${REFUSED}', command .. ' ' .. key)
        error('ERR script tried accessing undeclared key, key: ' .. key, 0)
      end
    end
    return run(command, ...)
  end
end
local redis = setmetatable({ call = strict(server.call), pcall = strict(server.pcall) }, { __index = server })
`;

interface SentCommand {
  name: string;
  readonly args: string[];
}

/**
 * Makes every server in this file reject keys that a call does not declare, as Dragonfly does by default. Works with
 * ioredis only.
 */
function strictKeysForTests(): void {
  const { sendCommand } = Redis.prototype;
  beforeAll(() => {
    const texts = new Map<string, string>();
    Redis.prototype.sendCommand = function (this: Redis, command, ...rest) {
      const sent = command as unknown as SentCommand;
      const [script = ''] = sent.args;
      if (sent.name === 'eval') {
        texts.set(createHash('sha1').update(script).digest('hex'), script);
        sent.args[0] = STRICT + script;
      } else if (sent.name === 'evalsha' && texts.has(script)) {
        sent.name = 'eval';
        sent.args[0] = STRICT + (texts.get(script) ?? '');
      }
      return sendCommand.call(this, command, ...rest);
    };
  });
  afterAll(() => {
    Redis.prototype.sendCommand = sendCommand;
  });
}

/** Returns and clears the list of rejected commands. */
async function refusedKeys(admin: Redis): Promise<string[]> {
  const refused = await admin.lrange(REFUSED, 0, -1);
  await admin.del(REFUSED);
  return refused;
}

const started: LockManager[] = [];

async function start(provider: RedisLockProvider): Promise<LockManager> {
  const locks = new LockManager({ providers: { redis: provider }, defaults: { wait: 60_000 } });
  started.push(locks);
  await locks.start();
  return locks;
}

describe('a server that rejects undeclared keys', () => {
  strictKeysForTests();
  const redis = redisForTests();
  const on = (options: Partial<RedisLockProviderOptions> = {}) =>
    start(new RedisLockProvider({ url: redis.server.url, ...options } as RedisLockProviderOptions));

  afterEach(async () => {
    await Promise.all(started.splice(0).map((locks) => locks.stop()));
  });

  /** Starts two processes that have learned that the server is strict. */
  async function two(): Promise<[LockManager, LockManager]> {
    const both: [LockManager, LockManager] = [await on(), await on()];
    for (const locks of both) await locks.withLock('first', () => undefined);
    expect(await refusedKeys(redis.admin)).toHaveLength(2);
    return both;
  }

  it('acquires the first lock with a second call, both for a lone key and in a batch', async () => {
    const locks = await on();
    expect(await locks.withLock('first', () => 'ran')).toBe('ran');
    const others = await on();
    await Promise.all(['a', 'b', 'c', 'd'].map((key) => others.withLock(key, () => undefined)));
    const chained = await on();
    await chained.withLock(['p', 'q', 'r'], () => undefined);
    await refusedKeys(redis.admin);
    await chained.withLock(['p', 'q', 'r'], () => undefined);
    expect(await refusedKeys(redis.admin)).toEqual([]);
  });

  it.each([{}, { minHold: 50 }, { mode: 'shared' }, { limit: 2 }, { lease: 200 }] as LockOptions[])(
    'supports waiting, handoff, renewal, extension and release, with %j',
    async (options) => {
      const [one, other] = await two();
      const holders = await Promise.all([one.acquire(['k', 'l'], options), options.mode && one.acquire('k', options)]);
      const waiting = [one, other].map((locks) => locks.withLock(['k', 'l'], () => 'ran', { lease: 10_000 }));
      const readers = [one, other].map((locks) => locks.withLock('k', () => 'read', { mode: 'shared' }));
      await until(() => other.admin.waiting().length === 2, 'both callers wait');
      if (options.lease !== undefined) await new Promise((resolve) => setTimeout(resolve, 400));
      await holders[0].extend();
      await expect(other.acquire('k', { wait: 0 })).rejects.toThrow(LockBusyError);
      for (const holder of holders) if (holder) await holder.release();
      expect(await Promise.all([...waiting, ...readers])).toEqual(['ran', 'ran', 'read', 'read']);
      expect(await refusedKeys(redis.admin)).toEqual([]);
    },
  );

  it('supports leaving, inspecting, listing and freeing a lock, and recording a job', async () => {
    const [one, other] = await two();
    for (const options of [{}, { mode: 'shared' }, { limit: 2 }] as LockOptions[]) {
      const held = await one.acquire('k', options);
      const aborted = new AbortController();
      const waiter = other.acquire('k', { signal: aborted.signal });
      await waitersAre(one.admin, 'k', 1);
      aborted.abort();
      await expect(waiter).rejects.toThrow('abort');
      for await (const { key } of one.admin.list()) expect(key).toBe('k');
      expect(await other.admin.forceRelease('k')).toBe(true);
      expect(await held.release()).toBe('lost');
    }
    const { backend } = await startBackend({ url: redis.server.url });
    expect(await backend.records.replace('job', null, 'ran')).toMatchObject({ value: 'ran' });
    expect(await backend.records.read('job')).toMatchObject({ value: 'ran' });
    expect(await refusedKeys(redis.admin)).toEqual([]);
  });

  it('passes over a dead waiter, whose records expire', async () => {
    const gone = await startBackend({ url: redis.server.url });
    const steady = await startBackend({ url: redis.server.url });
    const holder = granted(await steady.backend.acquire(request('k')));
    void gone.backend.acquire(request('k')).catch(() => undefined);
    await untilWaiting(gone);
    await gone.backend.close();
    const waiter = steady.backend.acquire(request('k', { lease: 1_000 }));
    await refusedKeys(redis.admin);
    await steady.backend.release(holder, RELEASE);
    granted(await waiter);
    expect(await refusedKeys(redis.admin)).toEqual([]);
  });

  it('fails the boot as part of a Cluster, with an error that names the remedy', async () => {
    const cluster = await startRedisCluster({ replicas: 0 });
    try {
      const locks = start(new RedisLockProvider({ cluster: cluster.addresses }));
      await expect(locks).rejects.toThrow(LockConfigError);
      await expect(locks).rejects.toThrow('allow-undeclared-keys');
    } finally {
      await cluster.stop();
    }
  }, 60_000);
});
