import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Timer } from '../../lib/api/clock.js';
import type { LockCapabilities } from '../../lib/api/lock-provider.js';
import type { Lock } from '../../lib/api/lock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const LEASE = 10_000;

/** Runs timer callbacks in the async context in which they were set, as Node.js does. */
class ClockOfContexts extends FakeClock {
  override setTimer(callback: () => void, delay: number): Timer {
    return super.setTimer(AsyncLocalStorage.bind(callback), delay);
  }
}

/** Starts a manager whose provider grants every request and records the caller's context of each call. */
async function started(capabilities: Partial<LockCapabilities> = {}) {
  const provider = ScriptedProvider.obliging(capabilities);
  const clock = new ClockOfContexts();
  // Uses the full backoff each time, so that the pauses are deterministic.
  const random = { ...systemRandom(), fraction: () => 1 };
  const { locks } = await startManager({ provider, clock, random });
  const store = new AsyncLocalStorage<string>();
  const seen = { acquire: [] as unknown[], renew: [] as unknown[] };
  const { onAcquire, onRenew } = provider;
  provider.onAcquire = (...args) => (seen.acquire.push(store.getStore()), onAcquire?.(...args));
  provider.onRenew = (...args) => (seen.renew.push(store.getStore()), onRenew?.(...args));
  return { provider, clock, locks, store, seen };
}

const nothing = (times: number) => new Array<undefined>(times).fill(undefined);

describe('the async context of a caller', () => {
  it('does not leak into renewals by a watchdog timer set at a grant, an extension or a release', async () => {
    const { clock, locks, store, seen } = await started();
    const lock = await store.run('ann', () => locks.acquire('a', { lease: LEASE }));
    await clock.advance(LEASE);
    expect(seen.renew.length).toBeGreaterThan(1);
    // The lease is now due for renewal before the timer that is already set.
    await store.run('bob', () => lock.extend(LEASE / 2));
    expect(seen.renew.pop()).toBe('bob');
    const before = seen.renew.length;
    const other = await store.run('cid', () => locks.acquire('b', { lease: LEASE / 4, maxHold: 2 * LEASE }));
    await clock.advance(LEASE);
    await store.run('dan', () => other.release());
    await clock.advance(LEASE);
    expect(seen.renew.length).toBeGreaterThan(before + 4);
    expect(seen.renew).toEqual(nothing(seen.renew.length));
    expect(lock.isHeld()).toBe(true);
  });

  it('does not leak into renewals after a local handoff', async () => {
    const { provider, clock, locks, store, seen } = await started();
    provider.onAcquire = (_, grant) => ({ ...grant(), followers: 1 });
    const [first, second] = ['ann', 'bob'].map((name) =>
      store.run(name, () => watch(locks.acquire('a', { lease: LEASE }))),
    );
    await clock.advance(0);
    await store.run('ann', () => first?.value?.release());
    await clock.advance(2 * LEASE);
    expect(second?.value?.isHeld()).toBe(true);
    expect(provider.order.filter((call) => !call.startsWith('renew'))).toEqual(['acquire a']);
    expect(seen.renew.length).toBeGreaterThan(3);
    expect(seen.renew).toEqual(nothing(seen.renew.length));
  });

  it('does not leak into requests that are retried, or sent when another caller leaves or releases', async () => {
    const { provider, clock, locks, store, seen } = await started();
    const obliging = provider.onAcquire;
    const leaving = new AbortController();
    let failures = 2;
    provider.onAcquire = (request, grant) => {
      const answer = obliging?.(request, grant);
      if (failures-- > 0) throw new Error('a moment');
      return answer;
    };
    const callers = [{ signal: leaving.signal }, {}, { lease: LEASE }].map((options, index) =>
      store.run(`caller ${index}`, () => watch(locks.acquire('a', { wait: 60_000, ...options }))),
    );
    await clock.advance(0);
    store.run('aborting caller', () => {
      leaving.abort('enough');
    });
    await clock.advance(1_000);
    expect(callers.map(({ state }) => state)).toEqual(['rejected', 'fulfilled', 'pending']);
    await store.run('releasing caller', () => callers[1]?.value?.release());
    await clock.advance(0);
    expect(callers[2]?.value?.isHeld()).toBe(true);
    expect(seen.acquire).toEqual(nothing(4));
  });

  it('does not leak into requests sent at the end of a wait or after a pause in favor of other processes', async () => {
    const { provider, clock, locks, store, seen } = await started({ fair: false });
    const callers = Array.from({ length: 8 }, (_, index) =>
      store.run(`caller ${index}`, () => watch(locks.acquire('a', { wait: 60_000 }))),
    );
    for (const [index, caller] of callers.entries()) {
      while (caller.value === undefined) await clock.advance(1);
      await clock.advance(10);
      await store.run(`caller ${index}`, () => caller.value?.release());
    }
    expect(clock.now()).toBeGreaterThan(8 * 10 + 50);
    provider.onAcquire = () => void seen.acquire.push(store.getStore());
    const short = store.run('short', () => watch(locks.acquire('b', { wait: 100 })));
    const long = store.run('long', () => watch(locks.acquire('b', { wait: 60_000, lease: LEASE })));
    provider.queue(provider.asks[0]?.input.id ?? '');
    await clock.advance(100);
    expect([short.state, long.state]).toEqual(['rejected', 'pending']);
    expect(seen.acquire).toEqual(nothing(10));
  });

  it('does not leak into retries of a release', async () => {
    const { provider, clock, locks, store } = await started();
    const seen: unknown[] = [];
    provider.onRelease = () => (seen.push(store.getStore()), 'unknown');
    for (const [name, key] of [
      ['ann', 'a'],
      ['bob', 'b'],
    ] as const) {
      await store.run(name, async () => (await locks.acquire(key)).release());
    }
    expect(seen).toHaveLength(2);
    await clock.advance(5_000);
    const repeated = seen.slice(2);
    expect(repeated.length).toBeGreaterThan(4);
    expect(repeated).toEqual(nothing(repeated.length));
  });

  it('surrounds the checks of its signal, both before the request and in the tick of the grant', async () => {
    const { clock, locks, store } = await started();
    const { signal } = new AbortController();
    const looks: unknown[] = [];
    signal.throwIfAborted = () => void looks.push(store.getStore());
    const blocker = await locks.acquire('a');
    const waiting = store.run('ann', () => watch(locks.acquire('a', { signal })));
    await clock.advance(10);
    const before = looks.length;
    expect(before).toBeGreaterThan(0);
    await store.run('bob', () => blocker.release());
    await clock.advance(0);
    expect(waiting.value?.isHeld()).toBe(true);
    expect(looks.length).toBeGreaterThan(before);
    expect(new Set(looks)).toEqual(new Set(['ann']));
  });

  it('surrounds the trace of its hold, even after it waited for a holder and for another key', async () => {
    const { clock, locks, store } = await started();
    const name = 'tracing:nestjs-distributed-lock:hold:start';
    const traces: unknown[] = [];
    const note = (trace: unknown) => void traces.push([(trace as { key: string }).key, store.getStore()]);
    subscribe(name, note);
    try {
      const blockers = [await locks.acquire('a'), await locks.acquire('b')];
      traces.length = 0;
      const waiting = store.run('ann', () => watch(locks.acquire(['a', 'b'])));
      await clock.advance(10);
      for (const blocker of blockers) {
        await store.run('bob', () => blocker.release());
        await clock.advance(10);
      }
      expect(waiting.value?.isHeld()).toBe(true);
      expect(traces).toEqual([
        ['a', 'ann'],
        ['b', 'ann'],
      ]);
    } finally {
      unsubscribe(name, note);
    }
  });
});

const inNextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Counts the references that have not been collected while `kept` is in use. */
async function alive(references: readonly WeakRef<object>[], kept: readonly Lock[]): Promise<number> {
  let count = references.length;
  // A single collection may leave some garbage, but only what is really kept survives all of them.
  for (let turn = 0; turn < 50 && (turn < 3 || count >= 10); turn += 1) {
    await inNextTurn();
    globalThis.gc?.();
    count = references.filter((reference) => reference.deref() !== undefined).length;
  }
  expect(kept).toHaveLength(200);
  return count;
}

/** Ways in which a lock ends, and a lock that is still held. */
const ENDS: readonly [string, (lock: Lock, provider: ScriptedProvider) => unknown][] = [
  ['is held', () => undefined],
  ['was released', (lock) => lock.release()],
  ['was lost', (lock, provider) => provider.revoke(lock.holder)],
  [
    'was lost at its release',
    (lock, provider) => {
      provider.onRelease = () => 'lost';
      return lock.release();
    },
  ],
];

describe.each([
  ['', false],
  [', traced', true],
])('memory retained by a lock%s', (_, traced) => {
  const channels = ['hold', 'acquire'].map((name) => `tracing:nestjs-distributed-lock:${name}:asyncEnd`);
  const note = () => undefined;
  beforeEach(() => {
    if (traced) for (const channel of channels) subscribe(channel, note);
  });
  afterEach(() => {
    for (const channel of channels) unsubscribe(channel, note);
  });

  // A trace that has not ended refers to the context of its caller.
  it.each(traced ? ENDS.slice(1) : ENDS)(
    "a lock that %s retains neither its caller's async context nor the outer locks",
    async (_end, end) => {
      const provider = ScriptedProvider.obliging();
      const providers = { main: provider, outer: new MemoryLockProvider() };
      const locks = new LockManager({ providers, default: 'main', shutdownGrace: 0 });
      await locks.start();
      const store = new AsyncLocalStorage<object>();
      const kept: Lock[] = [];
      const contexts: WeakRef<object>[] = [];
      const around: WeakRef<Lock>[] = [];
      const call = (key: number) => {
        const context = { key };
        contexts.push(new WeakRef(context));
        const { signal } = new AbortController();
        return store.run(context, () =>
          locks.withLock(
            `outer ${key}`,
            async (outer) => {
              around.push(new WeakRef(outer));
              const lock = await locks.acquire(`key ${key}`, { signal });
              lock.signal.addEventListener('abort', note);
              await end(lock, provider);
              kept.push(lock);
            },
            { provider: 'outer' },
          ),
        );
      };
      for (let key = 0; key < 200; key += 1) await call(key);
      expect(await alive(contexts, kept)).toBeLessThan(10);
      expect(await alive(around, kept)).toBeLessThan(10);
      await locks.stop();
    },
  );
});
