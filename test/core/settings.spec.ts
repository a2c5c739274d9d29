import { jest } from '@jest/globals';
import * as os from 'node:os';
import { LockConfigError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockManagerOptions } from '../../lib/core/lock-manager-options.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const BARE = { shared: false, minHold: false, lease: 'session' } as const;

describe('lock options', () => {
  it.each<[string, LockOptions]>([
    ['mode', { mode: 'both' as 'shared' }],
    ['onLost', { onLost: 'shrug' as 'throw' }],
    ['wait', { wait: -1 }],
    ['wait', { wait: 'soon' as '1s' }],
    ['wait', { wait: '5' as '5ms' }],
    ['lease', { lease: 99 }],
    ['lease', { lease: Infinity }],
    ['maxHold', { maxHold: 0 }],
    ['minHold', { minHold: Infinity }],
    ['minHold', { minHold: 2_000, maxHold: 1_000 }],
    ['nowhere', { provider: 'nowhere' }],
  ])('are rejected by name: %s %j', async (name, options) => {
    const { locks } = await startManager();
    await expect(locks.acquire('a', options)).rejects.toThrow(LockConfigError);
    await expect(locks.withLock('a', () => undefined, options)).rejects.toThrow(name);
  });

  const TEXTS: readonly [string, object, string][] = [
    ['limit', { limit: '5' }, `is '5', but must be a whole number >= 1: convert the text, as with Number().`],
    ['weight', { limit: 5, weight: '2' }, `is '2', but must be a whole number >= 1: convert the text`],
    ['wait', { wait: '5000' }, `is '5000', but must be a duration`],
    ['release', { release: true }, `is true, but must be 'confirmed' or 'sent'`],
  ];
  it.each(TEXTS)('are rejected if they are unconverted environment strings: %s %j', async (name, options, words) => {
    const { locks } = await startManager();
    await expect(locks.acquire('a', options as LockOptions)).rejects.toThrow(`Option "${name}" ${words}`);
  });

  it('of the module are checked at construction and reported as module options', () => {
    for (const [option, value] of Object.entries({ reentrant: false, onLost: 'no', release: 'yes', wait: '5' })) {
      const options = { providers: { main: new MemoryLockProvider() }, defaults: { [option]: value } };
      expect(() => new LockManager(options as never)).toThrow(`Option "defaults.${option}" is`);
    }
  });

  it('of a decorator are rejected on a call, which would ignore them', async () => {
    const { locks } = await startManager();
    for (const option of ['onBusy', 'around', 'reentrant']) {
      const call = locks.acquire('a', { [option]: 'skip' });
      await expect(call).rejects.toThrow(`There is no option "${option}" for a lock`);
    }
  });

  it.each<[string, LockOptions]>([
    ['shared', { mode: 'shared' }],
    ['lease', { lease: '10s' }],
    ['minHold', { minHold: 1 }],
    ['transaction', { transaction: {} } as LockOptions],
    ['leese', { leese: '10s' } as LockOptions],
  ])('are rejected if the provider does not support them: %s', async (name, options) => {
    const { locks } = await startManager({ provider: ScriptedProvider.obliging(BARE) });
    await expect(locks.acquire('a', options)).rejects.toMatchObject({
      code: 'LOCK_CONFIG',
      provider: 'main',
      message: expect.stringContaining(name) as unknown,
    });
  });

  it('come from the defaults if the call omits them, a lease only if the provider has leases', async () => {
    const defaults = { wait: 100, lease: 2_000, maxHold: '1m', onLost: 'ignore', reentrant: true } as const;
    const { locks, clock } = await startManager({ defaults });
    const lock = await locks.acquire('a');
    expect(lock.remaining()).toBe(1_978);
    const waiting = watch(locks.acquire('a'));
    await clock.advance(100);
    expect(waiting.state).toBe('rejected');
    expect(await locks.tryAcquire('a')).toBeNull();
    await locks.withLock('b', () => locks.withLock('b', () => undefined));
    await startManager({ provider: ScriptedProvider.obliging(BARE), defaults });
  });
});

describe('manager options', () => {
  const one = () => ({ main: new MemoryLockProvider() });
  it.each<[string, LockManagerOptions]>([
    ['at least one', { providers: {} }],
    ['"default"', { providers: { one: new MemoryLockProvider(), two: new MemoryLockProvider() } }],
    ['"default"', { providers: one(), default: 'two' }],
    ['"default"', { providers: {}, default: 'two' }],
    ['cannot be named', { providers: { 'a b': new MemoryLockProvider() } }],
    ['namespace', { providers: one(), namespace: 'a:b' }],
    ['namespace', { providers: one(), namespace: '' }],
    ['shutdownGrace', { providers: one(), shutdownGrace: '-1s' }],
    ['wait', { providers: one(), defaults: { wait: 'soon' } }],
  ])('are rejected at construction: %s', (name, options) => {
    expect(() => new LockManager(options)).toThrow(LockConfigError);
    expect(() => new LockManager(options)).toThrow(name);
  });

  it('select the provider of a call by name', async () => {
    const two = ScriptedProvider.obliging();
    const { locks } = await startManager({ providers: { one: new MemoryLockProvider(), two }, default: 'one' });
    expect(locks.providerNames).toEqual(['one', 'two']);
    expect((await locks.acquire('a')).provider).toBe('one');
    expect((await locks.acquire('a', { provider: 'two' })).provider).toBe('two');
    await expect(locks.acquire('a', { provider: 'three' })).rejects.toThrow('"one", "two"');
  });
});

describe('administration', () => {
  it('shows and releases what is held, and shows what is waited for', async () => {
    const { locks, clock } = await startManager();
    const lock = await locks.acquire('a');
    const waiting = watch(locks.acquire('a', { mode: 'shared' }));
    await clock.advance(1_000);
    expect(await locks.admin.inspect('a')).toEqual({
      key: 'a',
      state: 'held',
      mode: 'exclusive',
      holders: 1,
      // The callers wait in the process that holds the key.
      waiters: 0,
      expiresIn: 29_000,
      fencingToken: lock.fencingToken,
      instances: [expect.any(String)],
      since: lock.acquiredAt,
    });
    expect(await locks.admin.inspect('b')).toBeNull();
    expect(locks.admin.held()).toEqual([
      {
        key: 'a',
        provider: 'main',
        mode: 'exclusive',
        method: null,
        acquiredAt: lock.acquiredAt,
        fencingToken: lock.fencingToken,
        remaining: 28_698,
        entries: 1,
      },
    ]);
    expect(locks.admin.waiting()).toEqual([
      { key: 'a', provider: 'main', mode: 'shared', method: null, waited: 1_000 },
    ]);
    expect(await locks.admin.forceRelease('a')).toBe(true);
    await clock.advance(0);
    expect([lock.isHeld(), waiting.value?.isHeld()]).toEqual([false, true]);
    expect(await locks.admin.forceRelease('b')).toBe(false);
  });

  it('does not show an expired lock', async () => {
    const { locks, clock } = await startManager();
    await locks.acquire('a', {});
    clock.block(30_000);
    expect(locks.admin.held()).toEqual([]);
  });

  it('is rejected if the provider does not support it', async () => {
    const { locks } = await startManager({ provider: new ScriptedProvider() });
    await expect(locks.admin.inspect('a')).rejects.toThrow('does not support inspect()');
    await expect(locks.admin.forceRelease('a')).rejects.toThrow('does not support forceRelease()');
  });
});

it('holder ids are random, unique and 128 bits long', () => {
  const random = systemRandom();
  const ids = Array.from({ length: 1_000 }, () => random.id());
  expect(new Set(ids).size).toBe(1_000);
  expect(ids.every((id) => /^[0-9a-f]{32}$/.test(id))).toBe(true);
  expect(random.fraction()).toBeLessThan(1);
});

/** Returns the instance name under which a manager without the option `instance` lists its locks on the given host. */
async function instanceOn(host: string): Promise<string | undefined> {
  let name: string | undefined;
  await jest.isolateModulesAsync(async () => {
    jest.unstable_mockModule('node:os', () => ({ ...os, hostname: () => host }));
    const { LockManager, MemoryLockProvider } = await import('../../lib/index.js');
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await locks.start();
    await locks.withLock('order', async () => {
      for await (const { instances } of locks.admin.list()) [name] = instances;
    });
    await locks.stop();
  });
  return name;
}

describe('the default instance', () => {
  it.each([
    ['shop-7f9c', 'shop-7f9c'],
    ['büro-pc', 'b%C3%BCro-pc'],
    ['会议室', '%E4%BC%9A%E8%AE%AE%E5%AE%A4'],
    ['my laptop', 'my laptop'],
    ['a\nb\u001b[31m\u007f', 'a%0Ab%1B[31m%7F'],
    ['\ud800', '%EF%BF%BD'],
    ['', 'host'],
    ['x'.repeat(80), 'x'.repeat(80)],
  ])('of a host named %j is named %j plus the process id', async (host, name) => {
    expect(await instanceOn(host)).toBe(`${name}:${process.pid}`);
  });

  it('of hosts with long names differs even if only the last characters of the names do', async () => {
    const names = [await instanceOn(`${'会'.repeat(40)}-1`), await instanceOn(`${'会'.repeat(40)}-2`)];
    expect(new Set(names).size).toBe(2);
    for (const name of names) expect(name).toMatch(/^%E4%BC%9A[\x20-\x7E]{1,91}$/);
  });
});
