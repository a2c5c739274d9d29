import { LockConfigError, LockLostError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { deferred, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

async function held(options = {}) {
  const provider = ScriptedProvider.obliging();
  provider.onRelease = undefined;
  const started = await startManager({ provider });
  const lock = await started.locks.acquire('a', { lease: 10_000, ...options });
  return { ...started, provider, lock };
}

describe('a release', () => {
  it('resolves when the backend has confirmed it', async () => {
    const { lock, clock, provider, names } = await held();
    const releasing = watch(lock.release());
    await clock.advance(500);
    expect(releasing.state).toBe('pending');
    expect(lock.isHeld()).toBe(false);
    expect(lock.remaining()).toBe(0);
    expect(() => lock.assertHeld()).toThrow(/already released/);
    provider.releases[0]?.answer('released');
    await clock.advance(0);
    expect(releasing.value).toBe('released');
    expect(lock.signal.aborted).toBe(false);
    expect(names()).toEqual(['acquired', 'released']);
  });

  it('is sent only once, however often it is requested, including through `await using`', async () => {
    const { lock, clock, provider } = await held();
    const releasing = [watch(lock.release()), watch(lock.release())];
    provider.releases[0]?.answer('released');
    await clock.advance(0);
    expect(releasing.map(({ value }) => value)).toEqual(['released', 'released']);
    await lock[Symbol.asyncDispose]();
    expect(provider.releases).toHaveLength(1);
  });

  it('ignores arguments that an event emitter passes', async () => {
    const { lock, provider } = await held();
    const releasing = (lock.release as (...args: unknown[]) => Promise<unknown>).call(lock, null);
    provider.releases[0]?.answer('released');
    expect(await releasing).toBe('released');
  });

  it('may be requested again by a listener of that same release', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks } = await startManager({ provider });
    const lock = await locks.acquire('a');
    locks.events.on('released', () => void lock.release());
    expect(await lock.release()).toBe('released');
    expect(provider.order).toEqual(['acquire a', 'release a']);
  });

  it('resolves to `lost` and emits a loss if the backend no longer has the lock', async () => {
    const { lock, clock, provider, events, log } = await held();
    const releasing = watch(lock.release());
    provider.releases[0]?.answer('lost');
    await clock.advance(0);
    expect(releasing.value).toBe('lost');
    expect(events.at(-1)).toMatchObject({ name: 'lost', event: { reason: 'revoked' } });
    expect(log.join()).toContain('Lock "a" (provider "main") was lost: the backend reports');
  });

  it.each([
    ['rolled-back', 'nothing you wrote in it was saved'],
    ['unknown', 'the server did not respond to its COMMIT'],
  ] as const)('reports a loss with an explanation if the outcome of its transaction was %s', async (written, words) => {
    const { locks, events, clock, provider } = await held();
    const cause = new Error('of the server');
    provider.onAcquire = (_, grant) => grant();
    provider.onRelease = () => ({ written, cause });
    const task = watch(locks.withLock('b', () => 'done'));
    await clock.advance(0);
    const reason = written === 'unknown' ? 'commit-unknown' : 'rolled-back';
    expect(task.error).toMatchObject({ code: 'LOCK_LOST', reason, cause, outcome: { value: 'done' } });
    expect(String(task.error)).toContain(words);
    expect(events.at(-1)).toMatchObject({ name: 'lost', event: { reason } });
    expect(provider.order.filter((call) => call === 'release b')).toHaveLength(1);
  });

  it('resolves to `lost` after the deadline, and reports the loss only once', async () => {
    const { lock, clock, provider, names } = await held();
    clock.block(10_000);
    expect(await lock.release()).toBe('lost');
    await clock.advance(0);
    expect(names()).toEqual(['acquired', 'lost']);
    // The dead id may still hold a lock, so it is released.
    expect(provider.releases).toHaveLength(1);
  });

  it('becomes pending if it gets no response, and is retried until it does', async () => {
    const { lock, clock, provider, names } = await held();
    const releasing = watch(lock.release());
    provider.releases[0]?.fail(new Error('no connection'));
    await clock.advance(0);
    expect(releasing.value).toBe('pending');
    await clock.advance(100);
    provider.releases[1]?.answer('unknown');
    await clock.advance(200);
    provider.releases[2]?.answer('lost');
    await clock.advance(10_000);
    expect(provider.releases).toHaveLength(3);
    expect(new Set(provider.releases.map(({ input }) => input.id))).toEqual(new Set([lock.holder]));
    expect(names()).toEqual(['acquired', 'unavailable', 'release-pending']);
    expect(clock.pendingTimers).toBe(0);
  });

  it('is not retried after the end of the lease', async () => {
    const { lock, clock, provider } = await held();
    provider.onRelease = () => 'unknown';
    expect(await lock.release()).toBe('pending');
    await clock.advance(30_000);
    const sent = provider.order.length;
    expect(sent).toBeGreaterThan(10);
    await clock.advance(30_000);
    expect(provider.order).toHaveLength(sent);
    expect(clock.pendingTimers).toBe(0);
  });

  it('outlasts an outage, after which its retries get their full time again', async () => {
    const { lock, clock, provider } = await held();
    provider.onRelease = () => {
      throw new Error('down');
    };
    expect(await lock.release()).toBe('pending');
    await clock.advance(3_600_000);
    provider.onRelease = () => 'unknown';
    provider.context.emit({ type: 'recovered' });
    await clock.advance(9_000);
    const sent = provider.order.length;
    await clock.advance(1_000);
    expect(provider.order.length).toBeGreaterThan(sent);
    await clock.advance(10_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('becomes one of a bounded number of pending releases during an outage', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    const keys = Array.from({ length: 11_000 }, (_, key) => `k${key}`);
    const held = await Promise.all(keys.map((key) => locks.acquire(key, { lease: 10_000 })));
    // All share one error, because 200,000 stack traces would take most of the time.
    const down = new Error('down');
    provider.onRelease = () => {
      throw down;
    };
    await Promise.all(held.map((lock) => lock.release()));
    // The leases end first, because retrying all releases until then would take most of the time.
    clock.block(20_000);
    await clock.advance(0);
    const before = provider.order.length;
    await clock.advance(1_000);
    const sent = provider.order.slice(before).filter((call) => call.startsWith('release'));
    expect(new Set(sent).size).toBe(10_000);
  });
});

describe('minHold', () => {
  it('retains the key for the remaining time, even if the clock is 1 % fast', async () => {
    const { lock, clock, provider } = await held({ minHold: 60_000 });
    await clock.advance(1_000);
    void lock.release();
    expect(provider.releases[0]?.options).toEqual({ keepFor: 59_010, failed: false });
  });

  it('does not restart when the release is retried', async () => {
    const { lock, clock, provider } = await held({ minHold: 60_000 });
    void lock.release();
    provider.releases[0]?.answer('unknown');
    await clock.advance(100);
    // The retry comes after 50 to 100 ms.
    expect(provider.releases[1]?.options.keepFor).toBeLessThanOrEqual(59_950);
  });

  it('retains nothing once it has passed', async () => {
    const { lock, clock, provider } = await held({ minHold: 1_000 });
    await clock.advance(2_000);
    void lock.release();
    expect(provider.releases[0]?.options.keepFor).toBe(0);
  });

  it('retains the key even if the lock was lost', async () => {
    const { clock, provider } = await held({ minHold: 60_000 });
    provider.onRenew = () => Promise.resolve('unknown');
    await clock.advance(10_000);
    expect(provider.releases[0]?.options).toEqual({
      keepFor: expect.closeTo(60_000 - 9_898 * 0.99) as unknown,
      failed: true,
    });
  });

  it.each<[string, (rig: Awaited<ReturnType<typeof startManager>>, leaving: AbortController) => unknown]>([
    ['an abort in the tick of the grant', (_, leaving) => leaving.abort('enough')],
    ['a stop in the tick of the grant', ({ locks }) => void locks.stop()],
    ['a loss in the tick of the grant', ({ clock }) => clock.block(10_000)],
  ])('does not apply to a grant that goes unused because of %s', async (_, happens) => {
    const provider = new ScriptedProvider();
    const rig = await startManager({ provider });
    const leaving = new AbortController();
    const { signal } = leaving;
    const ran: string[] = [];
    const task = () => void ran.push('task');
    const call = watch(rig.locks.withLock('a', task, { signal, minHold: 60_000, lease: 10_000 }));
    // Runs before the caller proceeds with the grant.
    rig.locks.events.on('acquired', () => {
      happens(rig, leaving);
    });
    provider.asks[0]?.grant();
    await rig.clock.advance(0);
    provider.releases[0]?.answer('released');
    await rig.clock.advance(0);
    expect([call.state, ran]).toEqual(['rejected', []]);
    expect(provider.releases.map(({ options }) => options)).toEqual([{ keepFor: 0, failed: true }]);
  });

  it('counts from the grant of each key, once all keys are held', async () => {
    const provider = ScriptedProvider.obliging();
    const { locks, clock } = await startManager({ provider });
    provider.onAcquire = ({ key }, grant) => (key === 'a' ? grant() : undefined);
    provider.onRelease = undefined;
    const taking = watch(locks.acquire(['a', 'b'], { minHold: 60_000 }));
    await clock.advance(3_000);
    provider.asks[0]?.grant();
    await clock.advance(1_000);
    void taking.value?.release();
    expect(provider.releases.map(({ input, options }) => [input.key, options.keepFor])).toEqual([
      ['b', 59_010],
      ['a', 56_040],
    ]);
  });
});

describe('a release without a response', () => {
  it('is retried for as long as the longest lease that was sent may last, acknowledged or not', async () => {
    const { lock, clock, provider } = await held({ lease: 1_000 });
    provider.onRenew = () => Promise.resolve('unknown');
    await expect(lock.extend('1m')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    const sentAt: number[] = [];
    provider.onRelease = () => {
      sentAt.push(clock.now());
      return 'unknown';
    };
    await expect(lock.release()).resolves.toBe('pending');
    await clock.advance(90_000);
    expect(sentAt.at(-1)).toBeGreaterThan(55_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('is retried after a loss too, because a renewal whose response was lost may still hold the key', async () => {
    const { clock, provider, names } = await held({ lease: 30_000 });
    provider.onRenew = () => Promise.resolve('unknown');
    const sentAt: number[] = [];
    provider.onRelease = () => {
      sentAt.push(clock.now());
      return 'unknown';
    };
    await clock.advance(90_000);
    expect(names()).toContain('lost');
    expect(sentAt.at(-1)! - sentAt[0]!).toBeGreaterThan(25_000);
    expect(clock.pendingTimers).toBe(0);
  });
});

async function ordered() {
  const provider = ScriptedProvider.obliging({ ordered: true });
  provider.onRelease = undefined;
  return { provider, ...(await startManager({ provider })) };
}

const SENT = { release: 'sent' } as const;

describe("release: 'sent'", () => {
  it('ends the call once the release is sent, and reports the outcome as an event', async () => {
    const { locks, provider, clock, names } = await ordered();
    const sent = watch(locks.withLock('a', () => 1, SENT));
    const confirmed = watch(locks.withLock('b', () => 2));
    await clock.advance(0);
    expect(sent.value).toBe(1);
    expect(confirmed.state).toBe('pending');
    expect(provider.order).toEqual(['acquire a', 'acquire b', 'release a', 'release b']);
    expect(names()).toEqual(['acquired', 'acquired']);
    for (const release of provider.releases) release.answer('released');
    await clock.advance(0);
    expect(names()).toEqual(['acquired', 'acquired', 'released', 'released']);
    expect(confirmed.value).toBe(2);
  });

  it("passes on the task's error", async () => {
    const { locks } = await ordered();
    await expect(locks.withLock('a', () => Promise.reject(new Error('mine')), SENT)).rejects.toThrow('mine');
  });

  it('ends `await using` like a call, while release() still waits for the response', async () => {
    const { locks, provider, clock } = await ordered();
    const [used, released] = [await locks.acquire('a', SENT), await locks.acquire('b', SENT)];
    await used[Symbol.asyncDispose]();
    const releasing = watch(released.release());
    await clock.advance(0);
    expect(releasing.state).toBe('pending');
    provider.releases[1]?.answer('released');
    await clock.advance(0);
    expect(releasing.value).toBe('released');
  });

  it('reports a loss that only the backend knows as an event and in the log', async () => {
    const { locks, provider, clock, names, log } = await ordered();
    expect(await locks.withLock('a', () => 1, SENT)).toBe(1);
    provider.releases[0]?.answer('lost');
    await clock.advance(0);
    expect(names()).toEqual(['acquired', 'lost']);
    expect(log).toEqual([expect.stringMatching(/Lock "a" .* was lost/)]);
  });

  it('rejects on a loss that the clock shows when the task ends', async () => {
    const { locks, clock } = await ordered();
    const task = deferred();
    const call = watch(locks.withLock('a', () => task.promise, { ...SENT, lease: 1_000 }));
    await clock.advance(0);
    clock.block(1_000);
    task.resolve();
    await clock.advance(0);
    expect(call.error).toBeInstanceOf(LockLostError);
  });

  it('reports a release without a response as an event, and retries it', async () => {
    const { locks, provider, clock, names } = await ordered();
    await locks.withLock('a', () => 1, SENT);
    provider.releases[0]?.answer('unknown');
    await clock.advance(1_000);
    expect(names()).toEqual(['acquired', 'release-pending']);
    expect(provider.releases.length).toBeGreaterThan(1);
  });

  it('makes a stop wait for the release', async () => {
    const { locks, provider, clock } = await ordered();
    await locks.withLock('a', () => 1, SENT);
    const stopped = watch(locks.stop());
    await clock.advance(100);
    expect(stopped.state).toBe('pending');
    provider.releases[0]?.answer('released');
    await clock.advance(0);
    expect(stopped.state).toBe('fulfilled');
  });

  it('is rejected if the backend may reorder commands, both for a call and at boot', async () => {
    const { locks } = await startManager({ provider: new ScriptedProvider() });
    await expect(locks.acquire('a', SENT)).rejects.toThrow(LockConfigError);
    const boot = () => new LockManager({ providers: { main: new ScriptedProvider() }, defaults: SENT });
    expect(boot).toThrow(/"main".*release: 'sent'/);
    const unknown = { release: 'later' as 'sent' };
    await expect(locks.acquire('a', unknown)).rejects.toThrow(/'confirmed' or 'sent'/);
  });
});
