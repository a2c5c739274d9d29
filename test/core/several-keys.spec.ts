import { LockManager } from '../../lib/core/lock-manager.js';
import type { BackendContext } from '../../lib/api/lock-provider.js';
import { LockBusyError } from '../../lib/api/errors.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

describe('several keys', () => {
  it('are acquired in sorted order without duplicates, and released together in reverse', async () => {
    const provider = ScriptedProvider.obliging();
    provider.onRelease = undefined;
    const { locks, clock } = await startManager({ provider });
    const lock = await locks.acquire(['c', 'a', 'b', 'a']);
    expect(lock.keys).toEqual(['a', 'b', 'c']);
    expect([lock.key, lock.fencingToken, lock.provider]).toEqual(['a', null, 'main']);
    expect([...lock.fencingTokens]).toEqual([
      ['a', 1n],
      ['b', 2n],
      ['c', 3n],
    ]);
    const releasing = watch(lock.release());
    expect(provider.order.slice(3)).toEqual(['release c', 'release b', 'release a']);
    const [c, b, a] = provider.releases;
    c?.answer('released');
    b?.answer('unknown');
    a?.answer('released');
    await clock.advance(0);
    expect(releasing.value).toBe('pending');
  });

  it('are released if the backend fails, waiting for all responses concurrently', async () => {
    const provider = ScriptedProvider.obliging();
    const failure = new Error('no');
    provider.onAcquire = ({ key }, grant) => (key === 'c' ? Promise.reject(failure) : grant());
    provider.onRelease = undefined;
    const { locks, clock } = await startManager({ provider });
    const waiting = watch(locks.acquire(['a', 'b', 'c'], { wait: 0 }));
    await clock.advance(0);
    expect(provider.order).toEqual([
      ...['acquire a', 'acquire b', 'acquire c'],
      ...['release c', 'release b', 'release a'],
    ]);
    for (const release of provider.releases) release.answer('released');
    await clock.advance(0);
    expect(waiting.error).toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'c', cause: failure });
  });

  it('are not acquired after an abort between two keys that are free', async () => {
    const { locks, clock } = await startManager();
    const controller = new AbortController();
    locks.events.on('acquired', () => {
      controller.abort('enough');
    });
    const waiting = watch(locks.acquire(['a', 'b'], { signal: controller.signal }));
    await clock.advance(0);
    expect(waiting.error).toBe('enough');
    expect(locks.admin.held()).toEqual([]);
  });

  it.each<[string, object, (controller: AbortController, clock: FakeClock) => void]>([
    ['is aborted', {}, (controller) => controller.abort()],
    ['times out', { wait: 100 }, () => undefined],
    ['ends after the loss of one', { lease: 1_000, wait: 2_000 }, (_, clock) => clock.block(1_000)],
  ])('are not retained by minHold if the wait for the others %s', async (_, options, end) => {
    const { locks, clock } = await startManager();
    const blocker = await locks.acquire('b');
    const controller = new AbortController();
    const waiting = watch(
      locks.acquire(['a', 'b'], { minHold: '1h', signal: controller.signal, wait: 1_000, ...options }),
    );
    await clock.advance(10);
    expect(locks.admin.held()).toHaveLength(2);
    end(controller, clock);
    await clock.advance(3_000);
    expect(waiting.state).toBe('rejected');
    await expect(locks.admin.inspect('a')).resolves.toBeNull();
    await blocker.release();
  });

  it('are checked again before the task runs, because one may be lost by then', async () => {
    const { locks, clock } = await startManager();
    const blocker = await locks.acquire('b');
    let ran = false;
    const waiting = watch(locks.withLock(['a', 'b'], () => void (ran = true), { lease: 1_000, wait: 10_000 }));
    await clock.advance(10);
    clock.block(2_000);
    await blocker.release();
    await clock.advance(0);
    expect(waiting.error).toMatchObject({ code: 'LOCK_LOST', key: 'a' });
    expect(ran).toBe(false);
    expect(locks.admin.held()).toEqual([]);
  });

  it('name the lost key and the awaited key in the error, and do not wait for the rest', async () => {
    const { locks, clock } = await startManager();
    const blockers = [await locks.acquire('b'), await locks.acquire('c')];
    const waiting = watch(locks.acquire(['a', 'b', 'c'], { wait: 10_000 }));
    await clock.advance(10);
    await locks.admin.forceRelease('a');
    await blockers[0]?.release();
    await clock.advance(0);
    expect(waiting.error).toMatchObject({ code: 'LOCK_LOST', key: 'a', reason: 'revoked' });
    expect(String(waiting.error)).toMatch(
      /^LockLostError: Lock "a" .*was lost: .* The call was waiting for "b" at that time\.$/,
    );
    expect(locks.admin.held()).toMatchObject([{ key: 'c' }]);
    expect(locks.admin.waiting()).toEqual([]);
    await blockers[1]?.release();
  });

  it('count maxHold from the last key', async () => {
    const { locks, clock } = await startManager();
    const blocker = await locks.acquire('b');
    const waiting = watch(locks.acquire(['a', 'b'], { maxHold: 1_000 }));
    await clock.advance(3_000);
    await blocker.release();
    await clock.advance(999);
    expect(waiting.value?.isHeld()).toBe(true);
    await clock.advance(1);
    expect(waiting.value?.isHeld()).toBe(false);
    expect(locks.admin.held()).toEqual([]);
  });

  it('are lost together if one is lost, with a single abort', async () => {
    const { locks, clock, names } = await startManager();
    const lock = await locks.acquire(['a', 'b']);
    let aborts = 0;
    lock.signal.addEventListener('abort', () => (aborts += 1));
    await locks.admin.forceRelease('b');
    expect(lock.isHeld()).toBe(false);
    expect(lock.signal.reason).toMatchObject({ key: 'b', reason: 'revoked' });
    await locks.admin.forceRelease('a');
    expect(aborts).toBe(1);
    expect(await lock.release()).toBe('lost');
    await clock.advance(0);
    expect(names()).toEqual(['acquired', 'acquired', 'lost', 'lost']);
  });

  it('re-enter the keys that are already held, and count only those', async () => {
    const { locks } = await startManager({ defaults: { reentrant: true } });
    await locks.withLock('a', async (outer) => {
      const lock = await locks.acquire(['a', 'b']);
      expect(locks.admin.held()).toMatchObject([
        { key: 'a', entries: 2 },
        { key: 'b', entries: 1 },
      ]);
      expect(await lock.release()).toBe('released');
      expect(locks.admin.held()).toMatchObject([{ key: 'a', entries: 1 }]);
      // A failure to acquire the second key leaves the first unchanged.
      await locks.detached(() => locks.acquire('c'));
      await expect(locks.acquire(['a', 'c'], { wait: 0 })).rejects.toBeInstanceOf(LockBusyError);
      expect(locks.admin.held()).toMatchObject([{ key: 'a', entries: 1 }, { key: 'c' }]);
      expect(outer.isHeld()).toBe(true);
    });
  });
});

describe('the depth of a request', () => {
  class Observed extends MemoryLockProvider {
    readonly depths: (readonly [key: string, depth: number | undefined])[] = [];
    override createBackend(context: BackendContext) {
      const backend = super.createBackend(context);
      const acquire = backend.acquire.bind(backend);
      backend.acquire = (request) => {
        this.depths.push([request.key, request.otherKeysHeld]);
        return acquire(request);
      };
      return backend;
    }
  }

  it('is the number of keys of this provider that the caller holds', async () => {
    const [one, other] = [new Observed(), new Observed()];
    const locks = new LockManager({ providers: { one, other }, default: 'one', defaults: { reentrant: true } });
    await locks.start();
    await locks.withLock('a', () =>
      locks.withLock(['b', 'c'], async () => {
        // A re-entered key sends no request.
        await locks.withLock(['a', 'd'], () => undefined);
        await locks.withLock('e', () => undefined, { provider: 'other' });
      }),
    );
    // acquire() sets no context.
    const first = await locks.acquire('f');
    await (await locks.acquire('g')).release();
    await first.release();
    await locks.stop();
    expect(one.depths).toEqual([
      ['a', 0],
      ['b', 1],
      ['c', 2],
      ['d', 3],
      ['f', 0],
      ['g', 0],
    ]);
    expect(other.depths).toEqual([['e', 0]]);
  });
});
