import { AsyncLocalStorage } from 'node:async_hooks';
import type { Lock } from '../../lib/api/lock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { surroundingLocks } from '../../lib/core/hold/granted-lock.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { deferred, startManager } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

const inNextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

async function start() {
  const locks = new LockManager({ providers: { main: new MemoryLockProvider() } });
  await locks.start();
  return locks;
}

/**
 * Calls `work` `times` times, each from an immediate that the previous call scheduled. Resolves to the context of the
 * last.
 */
function startingItself(times: number, work: (next: () => void) => Promise<unknown>): Promise<unknown> {
  return new Promise((resolve, reject) => {
    let left = times;
    const run = () => {
      left -= 1;
      work(() => {
        const context = AsyncLocalStorage.snapshot();
        if (left > 0) setImmediate(run);
        else setImmediate(resolve, context);
      }).catch(reject);
    };
    run();
  });
}

/** Counts the references that have not been collected while `context` is in use. */
async function alive(references: readonly WeakRef<object>[], context: unknown): Promise<number> {
  await inNextTurn();
  globalThis.gc?.();
  expect(typeof context).toBe('function');
  return references.filter((reference) => reference.deref() !== undefined).length;
}

describe('the context of a lock', () => {
  // These tests use memory on the real clock, whose timers run in the context in which they were set.
  it('does not leak into a listener of another lock whose loss is detected by a timer that was set in this context', async () => {
    const locks = await start();
    const other = await locks.acquire('z', { maxHold: 600 });
    const asked = new Promise<unknown>((resolve) => {
      other.signal.addEventListener('abort', () => {
        resolve(locks.tryAcquire('x'));
      });
    });
    await locks.withLock('x', async (lock) => {
      // Schedules the next renewal, which comes before the loss, in this context.
      await lock.extend(1_000);
      expect(await asked).toBeNull();
    });
    await locks.stop();
  });

  it('does not leak into a listener of another lock that this context force-releases', async () => {
    const locks = await start();
    const other = await locks.acquire('z');
    const asked = new Promise<unknown>((resolve) => {
      other.signal.addEventListener('abort', () => {
        resolve(locks.tryAcquire('x').then((lock) => [lock, locks.current()]));
      });
    });
    await locks.withLock('x', async () => {
      await locks.admin.forceRelease('z');
      expect(await asked).toEqual([null, undefined]);
    });
    await locks.stop();
  });

  it('does not leak into event listeners', async () => {
    const locks = await start();
    const seen: unknown[] = [];
    for (const name of ['acquired', 'released'] as const) locks.events.on(name, () => void seen.push(locks.current()));
    await locks.withLock('x', () => locks.withLock('y', () => undefined));
    expect(seen).toEqual([undefined, undefined, undefined, undefined]);
    await locks.stop();
  });

  it('ends with the lock, even for work that outlives it', async () => {
    const { locks } = await startManager();
    const gate = deferred();
    let seen: Promise<unknown> = Promise.resolve();
    await locks.withLock('a', async (lock) => {
      seen = gate.promise.then(() => [locks.current(), locks.current('a')]);
      expect(locks.current()).toBe(lock);
    });
    gate.resolve();
    expect(await seen).toEqual([undefined, undefined]);
  });

  it('falls back to outer locks that are still held', async () => {
    const { locks } = await startManager();
    await locks.withLock('a', async (outer) => {
      let later: (() => Lock | undefined) | undefined;
      await locks.withLock('b', () => {
        later = AsyncLocalStorage.bind(() => locks.current());
      });
      expect(later?.()).toBe(outer);
    });
  });

  it('still shows a lost lock until its task ends', async () => {
    const { locks } = await startManager();
    const task = locks.withLock(
      'a',
      async (lock) => {
        await locks.admin.forceRelease('a');
        expect(locks.current()).toBe(lock);
      },
      { onLost: 'ignore' },
    );
    await task;
  });

  it('does not re-enter through a lock that has ended, even if an inner entry still holds the key', async () => {
    const { locks } = await startManager({ defaults: { reentrant: true } });
    let later: (() => Promise<Lock | null>) | undefined;
    let inner: Lock | undefined;
    await locks.withLock('a', async () => {
      later = AsyncLocalStorage.bind(() => locks.tryAcquire('a'));
      inner = await locks.acquire('a');
    });
    expect(await later?.()).toBeNull();
    await inner?.release();
  });

  it('retains no ended locks over 20,000 calls that start the next one', async () => {
    const locks = await start();
    const references: WeakRef<Lock>[] = [];
    const last = await startingItself(20_000, (next) =>
      locks.withLock('job', (lock) => {
        references.push(new WeakRef(lock));
        next();
      }),
    );
    expect(references).toHaveLength(20_000);
    expect(await alive(references, last)).toBeLessThan(10);
    await locks.stop();
  });

  it('retains no ended locks if each lock is acquired before the previous one ends', async () => {
    const locks = await start();
    const references: WeakRef<Lock>[] = [];
    let key = 0;
    const last = await startingItself(2_000, (next) =>
      locks.withLock(`key ${(key += 1)}`, async (lock) => {
        references.push(new WeakRef(lock));
        next();
        await inNextTurn();
        await inNextTurn();
      }),
    );
    await inNextTurn();
    await inNextTurn();
    expect(await alive(references, last)).toBeLessThan(10);
    await locks.stop();
  });

  it('retains no ended locks over 20,000 local handoffs', async () => {
    const provider = ScriptedProvider.obliging();
    provider.onAcquire = (_, grant) => ({ ...grant(), followers: 63 });
    const locks = new LockManager({ providers: { main: provider } });
    await locks.start();
    const references: WeakRef<Lock>[] = [];
    const last = await startingItself(313, (next) =>
      Promise.all(
        Array.from({ length: 64 }, (_, caller) =>
          locks.withLock('job', (lock) => {
            references.push(new WeakRef(lock));
            if (caller === 63) next();
          }),
        ),
      ),
    );
    expect(references.length).toBeGreaterThan(20_000);
    expect(provider.order.length).toBeLessThan(references.length / 2);
    expect(await alive(references, last)).toBeLessThan(100);
    await locks.stop();
  });

  it('does not grow through a lock that runs task after task', async () => {
    const locks = await start();
    const [one, other] = [await locks.acquire('a'), await locks.acquire('b')];
    let most = 0;
    let round = 0;
    await startingItself(100, (next) => {
      round += 1;
      return (round % 2 ? one : other).run(() => {
        most = Math.max(most, surroundingLocks().length);
        next();
        return Promise.resolve();
      });
    });
    expect(most).toBe(2);
    await Promise.all([one.release(), other.release()]);
    await locks.stop();
  });
});

describe('the async context at boot', () => {
  it('is not retained by the application', async () => {
    const store = new AsyncLocalStorage<object>();
    /** Boots in a separate context, like the span of an instrumentation. */
    const boot = async () => {
      const span = {};
      const locks = await store.run(span, start);
      return { locks, span: new WeakRef(span) };
    };
    const { locks, span } = await boot();
    await inNextTurn();
    globalThis.gc?.();
    expect(span.deref()).toBeUndefined();
    await locks.stop();
  });
});
