import { LockConfigError, LockDeadlockError } from '../../lib/api/errors.js';
import type { LockOptions } from '../../lib/api/lock-options.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { BACKENDS, type Outcome, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

describe.each(BACKENDS)('limited locks (%s backend)', (_, provide) => {
  const started = () => startManager({ provider: provide(new MemoryStore()), defaults: { reentrant: true } });

  it('are re-entered without taking another share', async () => {
    const { locks } = await started();
    await locks.withLock(
      'report',
      async (outer) => {
        await locks.withLock('report', (inner) => expect(inner.holder).toBe(outer.holder), { limit: 2, weight: 1 });
        expect((await locks.admin.inspect('report'))?.used).toBe(2);
      },
      { limit: 2, weight: 2 },
    );
    await locks.withLock('report', () => locks.withLock('report', () => undefined, { limit: 2, weight: 2 }));
    expect(await locks.admin.inspect('report')).toBeNull();
  });

  it.each<[string, LockOptions, LockOptions, RegExp]>([
    [
      'with a larger weight',
      { limit: 3 },
      { limit: 3, weight: 2 },
      /held by this call with weight 1, .* weight 2 .*larger weight from the start/,
    ],
    [
      'exclusively',
      { limit: 3 },
      {},
      /already held in limited mode .* acquiring it in exclusive mode .*Use the same mode for both/,
    ],
    [
      'in shared mode',
      { limit: 3 },
      { mode: 'shared' },
      /already held in limited mode .* acquiring it in shared mode /,
    ],
    [
      'in limited mode under a shared lock',
      { mode: 'shared' },
      { limit: 3 },
      /already held in shared mode .* acquiring it in limited mode /,
    ],
  ])('are not re-entered %s, because the task would deadlock', async (_what, outer, inner, message) => {
    const { locks } = await started();
    const nested = locks.withLock('report', () => locks.withLock('report', () => undefined, inner), outer);
    await expect(nested).rejects.toThrow(LockDeadlockError);
    await expect(
      locks.withLock('report', () => locks.withLock('report', () => undefined, inner), outer),
    ).rejects.toThrow(message);
    expect(await locks.admin.inspect('report')).toBeNull();
  });

  it('are not re-entered with a smaller limit, which could not be enforced', async () => {
    const { locks } = await started();
    const nested = locks.withLock('report', () => locks.withLock('report', () => 1, { limit: 2 }), { limit: 3 });
    await expect(nested).rejects.toThrow(/with limit 3, .* with limit 2\. Use the same limit everywhere/);
  });

  it('that are busy in their own process get no advice to re-enter them', async () => {
    const { locks } = await started();
    await locks.acquire('report', { limit: 1 });
    const busy = locks.acquire('report', { limit: 1, wait: 0 });
    await expect(busy).rejects.toThrow(/Raise "wait"/);
  });
});

it.each<[string, LockOptions, RegExp]>([
  ['a weight without a limit', { weight: 2 }, /"weight" needs "limit"/],
  ['a mode', { limit: 2, mode: 'shared' }, /"limit" and "mode" are mutually exclusive/],
  ['zero holders', { limit: 0 }, /"limit" is 0, but must be a whole number >= 1/],
  ['a fractional holder', { limit: 1.5 }, /"limit" is 1.5/],
  ['a string', { limit: '3' as never }, /"limit" is '3', but/],
  ['an infinite limit', { limit: Infinity }, /"limit" is Infinity/],
  [
    'a weight that never fits',
    { limit: 2, weight: 3 },
    /"weight" is 3, but it must be a whole number from 1 to "limit" \(2\)/,
  ],
  [
    'more holders than a backend may keep',
    { limit: 10_001 },
    /more than 10000 callers could hold the key: lower the limit/,
  ],
  [
    'a limit that allows too many holders even with heavier weights',
    { limit: 30_001, weight: 3 },
    /with a "weight" of 3, so more than 10000/,
  ],
  ['zero weight', { limit: 2, weight: 0 }, /"weight" is 0/],
])('a limit is rejected with %s', async (_, options, message) => {
  const { locks } = await startManager();
  const error: unknown = await locks.acquire('report', options).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(LockConfigError);
  expect(String(error)).toMatch(message);
});

it('a provider that does not support limits rejects them', async () => {
  const { locks } = await startManager({ provider: new ScriptedProvider() });
  await expect(locks.acquire('report', { limit: 2 })).rejects.toThrow('Lock provider "main" cannot enforce "limit"');
});

it.each([true, false])(
  'thousands of leases that expire together end one by one, whatever a listener acquires meanwhile (fair: %s)',
  async (fair) => {
    const provider = ScriptedProvider.obliging({ limits: true, fair });
    const { locks, clock } = await startManager({ provider });
    const limited = { limit: 9_000, lease: 10_000 };
    const all = await Promise.all(Array.from({ length: 3_000 }, () => locks.acquire('report', limited)));
    provider.onAcquire = undefined;
    const waiting = watch(locks.acquire('report', limited));
    const again: Outcome<unknown>[] = [];
    locks.events.on('lost', () => void again.push(watch(locks.tryAcquire('report', limited))));
    await clock.advance(0);
    provider.onAcquire = (_, grant) => grant();
    clock.block(20_000);
    await clock.advance(10);
    provider.asks.at(-1)?.grant();
    await clock.advance(2_000);
    expect(all.filter((lock) => lock.isHeld())).toEqual([]);
    expect([again.length, new Set(again.map(({ state }) => state))]).toEqual([3_000, new Set(['fulfilled'])]);
    expect(waiting.state).not.toBe('pending');
  },
);
