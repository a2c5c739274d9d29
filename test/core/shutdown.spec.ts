import type { ReleaseOutcome } from '../../lib/api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { deferred, type Outcome, startManager, watch } from './manager-rig.js';
import { type Ask, ScriptedProvider } from './scripted-provider.js';

const STOPPING = { code: 'LOCK_UNAVAILABLE', message: expect.stringContaining('shutting down') as unknown };

describe('start', () => {
  it('must come first, and only once', async () => {
    const provider = new ScriptedProvider();
    const gate = deferred();
    provider.onConnect = () => gate.promise;
    const locks = new LockManager({ providers: { main: provider } });
    await expect(locks.acquire('a')).rejects.toBeInstanceOf(LockConfigError);
    const starting = locks.start();
    await expect(locks.start()).rejects.toBeInstanceOf(LockConfigError);
    await expect(locks.acquire('a')).rejects.toThrow('has not been started');
    gate.resolve();
    await starting;
    await expect(locks.start()).rejects.toThrow('Create a new one');
    expect(provider.closes).toBe(0);
    await locks.stop();
    expect(provider.closes).toBe(1);
    await expect(locks.start()).rejects.toThrow('Create a new one');
  });

  it('accepts a provider that already serves another application', async () => {
    const provider = new MemoryLockProvider();
    const [one, other] = [await startManager({ provider }), await startManager({ provider })];
    await one.locks.stop();
    await expect(other.locks.withLock('a', () => 'done')).resolves.toBe('done');
    await other.locks.stop();
  });

  it('stops every provider exactly once if it fails', async () => {
    const [good, bad] = [new ScriptedProvider(), new ScriptedProvider()];
    const failure = new LockUnavailableError('refused');
    bad.onConnect = () => Promise.reject(failure);
    const locks = new LockManager({ providers: { good, bad }, default: 'good' });
    await expect(locks.start()).rejects.toBe(failure);
    await locks.stop();
    expect([good.closes, bad.closes]).toEqual([1, 1]);
    await expect(locks.acquire('a')).rejects.toMatchObject(STOPPING);
  });

  it('can continue without a backend, but not after a programming error', async () => {
    const down = new ScriptedProvider();
    down.onConnect = () => Promise.reject(new LockUnavailableError('refused'));
    const { log, locks } = await startManager({ provider: down, failFast: false });
    expect(log).toEqual(['Lock provider "main" is not responding: refused']);
    await locks.stop();
    const wrong = new ScriptedProvider();
    wrong.onConnect = () => Promise.reject(new TypeError('a bug'));
    await expect(startManager({ provider: wrong, failFast: false })).rejects.toThrow('a bug');
  });

  it('logs the results of diagnose()', async () => {
    const provider = new (class extends ScriptedProvider {
      diagnose() {
        return Promise.resolve([
          { severity: 'warning', message: 'no persistence' },
          { severity: 'error', message: 'evicts keys' },
        ] as const);
      }
    })();
    const { log } = await startManager({ provider });
    expect(log).toEqual(['Lock provider "main": no persistence', 'Lock provider "main": evicts keys']);
  });
});

describe('stop', () => {
  it('lets holders finish, rejects waiters immediately, and refuses new callers', async () => {
    const { locks, clock } = await startManager();
    const task = deferred();
    const holder = watch(locks.withLock('a', () => task.promise));
    const waiter = watch(locks.acquire('a'));
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(0);
    expect(waiter.error).toMatchObject(STOPPING);
    await expect(locks.acquire('b')).rejects.toMatchObject(STOPPING);
    await clock.advance(5_000);
    expect(stopping.state).toBe('pending');
    task.resolve();
    await clock.advance(0);
    expect([holder.state, stopping.state]).toEqual(['fulfilled', 'fulfilled']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('finishes by default before Docker kills the process, even if no release gets a response', async () => {
    const provider = new ScriptedProvider();
    const { locks, clock } = await startManager({ provider });
    const holder = watch(
      locks.withLock('a', ({ signal }) => new Promise((_, reject) => signal.addEventListener('abort', reject))),
    );
    await clock.advance(0);
    provider.asks[0]!.grant();
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(6_999);
    expect(holder.state).toBe('pending');
    await clock.advance(2_001);
    expect([holder.state, stopping.state]).toEqual(['rejected', 'fulfilled']);
  });

  it('lets holders acquire what they need to finish, under any of their locks still held', async () => {
    const { locks, clock } = await startManager();
    const gate = deferred();
    const holder = watch(
      locks.withLock('a', async () => {
        await gate.promise;
        return locks.withLock('b', async (inner) => {
          await inner.release();
          return locks.withLock('c', () => 'done');
        });
      }),
    );
    await clock.advance(0);
    const stopping = watch(locks.stop());
    gate.resolve();
    await clock.advance(0);
    expect(holder.value).toBe('done');
    expect(stopping.state).toBe('fulfilled');
  });

  it('revokes the remaining locks after the grace period, and releases them', async () => {
    const { locks, clock, events } = await startManager({ shutdownGrace: '2s' });
    const task = deferred();
    let signal: AbortSignal | undefined;
    const holder = watch(
      locks.withLock('a', (lock) => {
        ({ signal } = lock);
        return task.promise;
      }),
    );
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(1_999);
    expect(signal?.aborted).toBe(false);
    await clock.advance(1);
    expect(signal?.reason).toMatchObject({ reason: 'shutdown' });
    expect(stopping.state).toBe('fulfilled');
    expect(events.at(-1)).toMatchObject({ name: 'lost', event: { reason: 'shutdown' } });
    task.resolve();
    await clock.advance(0);
    expect(holder.error).toMatchObject({ code: 'LOCK_LOST', reason: 'shutdown' });
    expect(clock.pendingTimers).toBe(0);
  });

  it("waits within the grace period for a slow release, which may commit a task's writes", async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider, shutdownGrace: '20s' });
    const answer = deferred<ReleaseOutcome>();
    provider.onRelease = () => answer.promise;
    const holder = watch(locks.withLock('a', () => 'done'));
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(15_000);
    expect([stopping.state, provider.closes]).toEqual(['pending', 0]);
    answer.resolve('released');
    await clock.advance(0);
    expect([holder.value, stopping.state]).toEqual(['done', 'fulfilled']);
  });

  it('stops only once however often it is called, and does nothing before a start', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks } = await startManager({ provider });
    await Promise.all([locks.stop(), locks.stop()]);
    await locks.stop();
    expect(provider.closes).toBe(1);
    const idle = new ScriptedProvider();
    const other = new LockManager({ providers: { idle } });
    await other.stop();
    expect(idle.closes).toBe(0);
    await expect(other.acquire('a')).rejects.toMatchObject(STOPPING);
  });

  it('waits for a start in progress, and nothing runs afterward', async () => {
    const provider = ScriptedProvider.obliging();
    const gate = deferred();
    provider.onConnect = () => gate.promise;
    const clock = new FakeClock();
    const locks = new LockManager({ providers: { main: provider }, clock });
    const starting = watch(locks.start());
    const stopping = watch(locks.stop());
    await clock.advance(10);
    expect(provider.closes).toBe(0);
    gate.resolve();
    await clock.advance(0);
    expect([starting.state, stopping.state, provider.closes]).toEqual(['fulfilled', 'fulfilled', 1]);
    await expect(locks.acquire('a')).rejects.toMatchObject(STOPPING);
  });

  it('is not undone by a start that ends later', async () => {
    const provider = ScriptedProvider.obliging();
    const gate = deferred();
    provider.onConnect = () => gate.promise;
    const clock = new FakeClock();
    const locks = new LockManager({ providers: { main: provider }, clock, shutdownGrace: 100 });
    const starting = watch(locks.start());
    const stopping = watch(locks.stop());
    await clock.advance(100);
    expect(stopping.state).toBe('fulfilled');
    gate.resolve();
    await clock.advance(0);
    expect(starting.state).toBe('fulfilled');
    await expect(locks.acquire('a')).rejects.toMatchObject(STOPPING);
  });

  it('rejects callers that wait under a lock after the grace period', async () => {
    const { locks, clock } = await startManager({ shutdownGrace: 100 });
    await locks.acquire('b');
    const waiting = watch(locks.withLock('a', () => locks.acquire('b', { wait: Infinity }), { onLost: 'ignore' }));
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(99);
    expect(waiting.state).toBe('pending');
    await clock.advance(1);
    expect(waiting.error).toMatchObject(STOPPING);
    expect(stopping.state).toBe('fulfilled');
    expect([locks.admin.held(), locks.admin.waiting(), clock.pendingTimers]).toEqual([[], [], 0]);
  });

  it('rejects callers that wait in the context of a lock that has ended', async () => {
    const { locks, clock } = await startManager();
    const blocker = await locks.acquire('b');
    let waiting: Outcome<unknown> | undefined;
    await locks.withLock('a', () => {
      waiting = watch(locks.acquire('b', { wait: Infinity }));
    });
    const stopping = watch(locks.stop());
    await clock.advance(0);
    expect(waiting?.error).toMatchObject(STOPPING);
    expect(stopping.state).toBe('pending');
    await blocker.release();
    await clock.advance(0);
    expect(stopping.state).toBe('fulfilled');
  });

  it('starts no task of a waiter whose outer lock has ended meanwhile', async () => {
    const { locks, clock } = await startManager();
    const blocker = await locks.acquire('b');
    const gate = deferred();
    let ran = false;
    let waiting: Outcome<unknown> | undefined;
    const outer = locks.withLock('a', () => {
      waiting = watch(locks.withLock('b', () => void (ran = true), { wait: Infinity }));
      return gate.promise;
    });
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(500);
    expect(waiting?.state).toBe('pending');
    gate.resolve();
    await outer;
    await blocker.release();
    await clock.advance(0);
    expect(waiting?.error).toMatchObject(STOPPING);
    expect([ran, stopping.state, locks.admin.held(), clock.pendingTimers]).toEqual([false, 'fulfilled', [], 0]);
  });

  it.each([0, 1, 2, 3, 4, 5, 6, 7, 8])(
    'leaves no lock held if it comes %i microtasks after the grant',
    async (hops) => {
      const provider = new ScriptedProvider();
      provider.onRelease = () => 'released';
      const { locks, clock } = await startManager({ provider });
      let ran = false;
      const waiting = watch(locks.withLock('a', () => void (ran = true)));
      provider.asks[0]?.grant();
      for (let hop = 0; hop < hops; hop += 1) await Promise.resolve();
      // Depending on timing, the task may or may not run; if it does, its lock was held and is released.
      const stopping = watch(locks.stop());
      await clock.advance(0);
      const outcomes = new Map([
        [true, 'fulfilled'],
        [false, 'rejected'],
      ]);
      expect(waiting.state).toBe(outcomes.get(ran));
      expect([stopping.state, locks.admin.held()]).toEqual(['fulfilled', []]);
      // An abandoned request is released, and again when its grant arrives.
      expect([...new Set(provider.order)]).toEqual(['acquire a', 'release a']);
      expect(clock.pendingTimers).toBe(0);
    },
  );

  it.each([0, 1, 2, 3, 4, 5, 6, 7, 8])(
    'leaves no lock held that is granted %i microtasks after the grace period',
    async (hops) => {
      const provider = new ScriptedProvider();
      provider.onRelease = () => 'released';
      provider.onAcquire = ({ key }, grant) => (key === 'a' ? grant() : undefined);
      const { locks, clock } = await startManager({ provider, shutdownGrace: 100 });
      const waiting = watch(locks.withLock('a', () => locks.acquire('b', { wait: Infinity }), { onLost: 'ignore' }));
      await clock.advance(0);
      const stopping = watch(locks.stop());
      clock.setTimer(() => {
        let granted = Promise.resolve();
        for (let hop = 0; hop < hops; hop += 1) granted = granted.then(() => undefined);
        void granted.then(() => provider.asks[0]?.grant());
      }, 100);
      await clock.advance(99);
      clock.block(1);
      await clock.advance(10);
      expect([waiting.state, stopping.state, locks.admin.held()]).toEqual(['rejected', 'fulfilled', []]);
      expect(provider.order.at(-1)).toBe('release b');
    },
  );

  it('waits for releases in progress before it closes the backend', async () => {
    const provider = ScriptedProvider.obliging();
    provider.onRelease = undefined;
    const { locks, clock } = await startManager({ provider });
    const lock = await locks.acquire('a');
    const releasing = watch(lock.release());
    const stopping = watch(locks.stop());
    await clock.advance(100);
    expect([stopping.state, provider.closes]).toEqual(['pending', 0]);
    provider.releases[0]?.answer('released');
    await clock.advance(0);
    expect([releasing.value, stopping.state, provider.closes]).toEqual(['released', 'fulfilled', 1]);
  });

  it('gives up on releases and requests without a response', async () => {
    const provider = new ScriptedProvider();
    const { locks, clock } = await startManager({ provider });
    const controller = new AbortController();
    const waiting = watch(locks.acquire('a', { signal: controller.signal }));
    controller.abort('enough');
    provider.onRelease = () => 'unknown';
    const stopping = watch(locks.stop());
    await clock.advance(2_000);
    expect([waiting.error, stopping.state, provider.closes]).toEqual(['enough', 'fulfilled', 1]);
    const sent = provider.order.length;
    await clock.advance(60_000);
    expect(provider.order).toHaveLength(sent);
    expect(clock.pendingTimers).toBe(0);
  });

  it('releases a grant that arrives with it, and a grant that arrives later', async () => {
    const provider = new ScriptedProvider();
    const { locks, clock } = await startManager({ provider });
    const waiting = [watch(locks.acquire('a')), watch(locks.acquire('b'))];
    provider.asks[0]?.grant();
    const stopping = watch(locks.stop());
    await clock.advance(0);
    provider.asks[1]?.grant();
    await clock.advance(0);
    expect(waiting.map(({ error }) => error)).toEqual([
      expect.objectContaining(STOPPING),
      expect.objectContaining(STOPPING),
    ]);
    // An abandoned request is released, and again when its grant arrives.
    expect(provider.releases.map(({ input }) => input.key)).toEqual(['a', 'b', 'a', 'b']);
    for (const release of provider.releases) release.answer('released');
    await clock.advance(0);
    expect(stopping.state).toBe('fulfilled');
    expect(locks.admin.held()).toEqual([]);
  });

  it("releases a grant that arrives after its caller's wait is over", async () => {
    const provider = new ScriptedProvider();
    const { locks, clock } = await startManager({ provider, shutdownGrace: 0 });
    const waiting = watch(locks.acquire('a', { wait: 1_000 }));
    await clock.advance(1_000);
    void locks.stop();
    await clock.advance(0);
    provider.asks[0]?.grant();
    await clock.advance(0);
    expect(waiting.error).toMatchObject(STOPPING);
    expect(provider.order).toEqual(['acquire a', 'release a', 'release a']);
    expect(locks.admin.held()).toEqual([]);
  });

  it('rejects a caller that holds one of several keys and waits for the next', async () => {
    const { locks, clock } = await startManager();
    const task = deferred();
    const holder = locks.withLock('b', () => task.promise);
    const waiting = watch(locks.acquire(['a', 'b']));
    await clock.advance(0);
    const stopping = watch(locks.stop());
    await clock.advance(0);
    expect(waiting.error).toMatchObject(STOPPING);
    task.resolve();
    await holder;
    await clock.advance(0);
    expect(stopping.state).toBe('fulfilled');
  });

  it('waits for a holder that still acquires a lock of another provider', async () => {
    const clock = new FakeClock();
    const [one, two] = [ScriptedProvider.obliging(), ScriptedProvider.obliging()];
    const locks = new LockManager({ providers: { one, two }, default: 'one', clock });
    await locks.start();
    const [gate, task] = [deferred(), deferred()];
    const holder = watch(
      locks.withLock('a', async (outer) => {
        await gate.promise;
        const inner = await locks.acquire('b', { provider: 'two' });
        await outer.release();
        await task.promise;
        return inner.release();
      }),
    );
    await clock.advance(0);
    const stopping = watch(locks.stop());
    gate.resolve();
    await clock.advance(0);
    expect(stopping.state).toBe('pending');
    task.resolve();
    await clock.advance(0);
    expect([holder.value, stopping.state]).toEqual(['released', 'fulfilled']);
  });

  it('keeps retained keys and does not wait for them', async () => {
    const { locks, clock } = await startManager();
    await locks.withLock('a', () => undefined, { minHold: '1h' });
    const stopping = watch(locks.stop());
    await clock.advance(0);
    expect(stopping.state).toBe('fulfilled');
    expect(await locks.admin.inspect('a')).toMatchObject({ state: 'retained' });
  });

  it('never rejects, and logs a backend that fails to close', async () => {
    const provider = new (class extends ScriptedProvider {
      override close() {
        return Promise.reject(new Error('stuck'));
      }
    })();
    const { locks, log } = await startManager({ provider });
    await locks.stop();
    expect(log).toEqual(['Lock provider "main" failed to close: Error: stuck']);
  });
});

describe('a stop while the backend is not responding', () => {
  const GRACE = 20_000;
  /** How long the stop waits for the last responses. */
  const CLOSING = 2_000;

  /** Expects the stop to end in exactly this many ms. */
  async function endsAfter(time: number, stopping: Outcome<void>, clock: FakeClock): Promise<void> {
    await clock.advance(time - 1);
    expect(stopping.state).toBe('pending');
    await clock.advance(1);
    expect(stopping.state).toBe('fulfilled');
  }

  async function withHolders(onRelease: ScriptedProvider['onRelease']) {
    const provider = ScriptedProvider.obliging();
    const rig = await startManager({ provider, shutdownGrace: GRACE });
    const [released, held] = [await rig.locks.acquire('released'), await rig.locks.acquire('held')];
    provider.onRelease = onRelease;
    return { ...rig, provider, released, held };
  }

  it.each<[string, ScriptedProvider['onRelease']]>([
    ['unknown', () => 'unknown'],
    ['a failure', () => Promise.reject(new Error('down'))],
  ])('does not spend its grace period on releases whose outcome was %s before', async (_, onRelease) => {
    const { locks, clock, provider, released, held } = await withHolders(onRelease);
    expect(await released.release()).toBe('pending');
    expect(await held.release()).toBe('pending');
    await clock.advance(3_000);
    await endsAfter(CLOSING, watch(locks.stop()), clock);
    expect(provider.closes).toBe(1);
    const sent = provider.order.length;
    await clock.advance(60_000);
    expect([provider.order.length, clock.pendingTimers]).toEqual([sent, 0]);
  });

  it('waits within its grace period for the first attempt of each release, but not for retries', async () => {
    const { locks, clock, provider, released, held } = await withHolders(undefined);
    const stopping = watch(locks.stop());
    void released.release();
    await clock.advance(5_000);
    provider.releases[0]?.answer('unknown');
    await clock.advance(1_000);
    void held.release();
    await clock.advance(3_000);
    expect([stopping.state, provider.closes]).toEqual(['pending', 0]);
    provider.onRelease = () => 'unknown';
    provider.releases.find(({ input }) => input.key === 'held')?.fail(new Error('down'));
    await endsAfter(CLOSING, stopping, clock);
    expect(clock.now()).toBeLessThan(GRACE);
  });

  it('ends when a retried release gets its response', async () => {
    const { locks, clock, released, provider, held } = await withHolders(() => 'unknown');
    await Promise.all([released.release(), held.release()]);
    const stopping = watch(locks.stop());
    await clock.advance(500);
    expect(stopping.state).toBe('pending');
    provider.onRelease = () => 'lost';
    await clock.advance(1_000);
    expect([stopping.state, provider.closes, clock.pendingTimers]).toEqual(['fulfilled', 1, 0]);
  });

  it('does not wait for a holder that lost its lock, and waits for the release that the loss sent only until it closes', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider, shutdownGrace: GRACE });
    provider.onRelease = undefined;
    provider.onRenew = () => Promise.resolve('unknown');
    const holder = watch(locks.withLock('a', () => new Promise(() => undefined), { lease: 1_000 }));
    await clock.advance(0);
    const stopping = watch(locks.stop());
    // The deadline of the lease, less 1 % and 2 ms, plus the time to close.
    await endsAfter(988 + CLOSING, stopping, clock);
    expect([holder.state, provider.closes]).toEqual(['pending', 1]);
    expect(provider.order.filter((call) => call === 'release a').length).toBeGreaterThan(0);
  });

  it.each<[string, (ask: Ask | undefined) => void]>([
    ['busy', (ask) => ask?.answer('busy')],
    ['a failure', (ask) => ask?.fail(new Error('down'))],
    ['a grant', (ask) => ask?.grant()],
  ])('closes when a request in flight ends with %s', async (_, answer) => {
    const provider = new ScriptedProvider();
    provider.onRelease = () => 'released';
    const { locks, clock } = await startManager({ provider, shutdownGrace: GRACE });
    const waiting = watch(locks.acquire('a', { wait: Infinity }));
    const stopping = watch(locks.stop());
    await clock.advance(500);
    expect(waiting.error).toMatchObject(STOPPING);
    expect([stopping.state, provider.closes]).toEqual(['pending', 0]);
    answer(provider.asks[0]);
    await clock.advance(0);
    expect([stopping.state, provider.closes, clock.pendingTimers]).toEqual(['fulfilled', 1, 0]);
  });

  it('closes after 2 s if a request in flight gets no response', async () => {
    const provider = new ScriptedProvider();
    provider.onRelease = () => 'released';
    const { locks, clock } = await startManager({ provider, shutdownGrace: GRACE });
    watch(locks.acquire('a', { wait: Infinity }));
    const stopping = watch(locks.stop());
    await endsAfter(CLOSING, stopping, clock);
    expect(provider.closes).toBe(1);
  });
});

describe('a caller that waits during a stop', () => {
  it.each([0, 1, 2, 3, 4, 5])(
    'is rejected even %i microtasks after a loss and before a grant that comes too late',
    async (turns) => {
      const provider = new ScriptedProvider();
      provider.onRelease = () => 'released';
      const { locks, clock } = await startManager({ provider, shutdownGrace: 1_000 });
      let nested!: Outcome<unknown>;
      watch(
        locks.withLock('outer', async () => {
          nested = watch(locks.acquire('nested', { wait: Infinity }));
          await nested.promise;
        }),
      );
      await clock.advance(0);
      provider.asks[0]?.grant();
      await clock.advance(0);
      const stopping = locks.stop();
      await clock.advance(0);
      provider.revoke(provider.asks[0]?.input.id ?? '');
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
      provider.asks[1]?.grant({ validUntil: -1 });
      await clock.advance(5_000);
      await stopping;
      expect(nested.error).toMatchObject(STOPPING);
      expect(clock.pendingTimers).toBe(0);
    },
  );

  it('does not wait for the last response, and its possible grant is released before the backend closes', async () => {
    const provider = new ScriptedProvider();
    provider.onRelease = () => 'released';
    const { locks, clock } = await startManager({ provider });
    const late = watch(locks.acquire('a', { wait: 0 }));
    await clock.advance(500);
    expect(late.state).toBe('pending');
    const stopping = watch(locks.stop());
    await clock.advance(0);
    expect(late.error).toMatchObject(STOPPING);
    expect(provider.closes).toBe(0);
    await clock.advance(2_000);
    expect(stopping.state).toBe('fulfilled');
    expect(provider.order).toEqual(['acquire a', 'release a']);
    expect(provider.closes).toBe(1);
  });
});

describe('a stop during the start', () => {
  it('prevents the connection of a composite whose member was still connecting', async () => {
    const [member, composite] = [new ScriptedProvider(), new ScriptedProvider()];
    const gate = deferred();
    member.onConnect = () => gate.promise;
    let connects = 0;
    composite.onConnect = async () => {
      connects += 1;
    };
    const clock = new FakeClock();
    const built = Object.assign(composite, { members: ['member'] });
    const providers = { built, member };
    const locks = new LockManager({ providers, default: 'built', clock, shutdownGrace: 1_000 });
    const starting = watch(locks.start());
    const stopping = locks.stop();
    await clock.advance(2_000);
    await stopping;
    gate.reject(new LockUnavailableError('refused'));
    await clock.advance(0);
    expect(starting.state).not.toBe('pending');
    expect(connects).toBe(0);
  });
});
