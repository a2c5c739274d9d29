import { LockConfigError, LockLostError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { deferred, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

async function ordered() {
  const provider = ScriptedProvider.obliging({ ordered: true });
  provider.onRelease = undefined;
  return { provider, ...(await startManager({ provider })) };
}

const SENT = { release: 'sent' } as const;

describe("release: 'sent'", () => {
  it('a call ends when its release is on its way, and the outcome is an event', async () => {
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

  it("passes the task's error", async () => {
    const { locks } = await ordered();
    await expect(locks.withLock('a', () => Promise.reject(new Error('mine')), SENT)).rejects.toThrow('mine');
  });

  it('`await using` ends as a call does, and release() waits for the answer all the same', async () => {
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

  it('a loss that only the backend knows is an event, and in the log', async () => {
    const { locks, provider, clock, names, log } = await ordered();
    expect(await locks.withLock('a', () => 1, SENT)).toBe(1);
    provider.releases[0]?.answer('lost');
    await clock.advance(0);
    expect(names()).toEqual(['acquired', 'lost']);
    expect(log).toEqual([expect.stringMatching(/Lock "a" .* was lost/)]);
  });

  it('a loss that the clock knows when the task ends rejects', async () => {
    const { locks, clock } = await ordered();
    const task = deferred();
    const call = watch(locks.withLock('a', () => task.promise, { ...SENT, lease: 1_000 }));
    await clock.advance(0);
    clock.block(1_000);
    task.resolve();
    await clock.advance(0);
    expect(call.error).toBeInstanceOf(LockLostError);
  });

  it('one that was not answered is an event, and is sent again', async () => {
    const { locks, provider, clock, names } = await ordered();
    await locks.withLock('a', () => 1, SENT);
    provider.releases[0]?.answer('unknown');
    await clock.advance(1_000);
    expect(names()).toEqual(['acquired', 'release-pending']);
    expect(provider.releases.length).toBeGreaterThan(1);
  });

  it('a stop waits for it', async () => {
    const { locks, provider, clock } = await ordered();
    await locks.withLock('a', () => 1, SENT);
    const stopped = watch(locks.stop());
    await clock.advance(100);
    expect(stopped.state).toBe('pending');
    provider.releases[0]?.answer('released');
    await clock.advance(0);
    expect(stopped.state).toBe('fulfilled');
  });

  it('is refused where commands may be executed in another order, for a call and at the boot', async () => {
    const { locks } = await startManager({ provider: new ScriptedProvider() });
    await expect(locks.acquire('a', SENT)).rejects.toThrow(LockConfigError);
    const boot = () => new LockManager({ providers: { main: new ScriptedProvider() }, defaults: SENT });
    expect(boot).toThrow(/"main".*release: 'sent'/);
    const unknown = { release: 'later' as 'sent' };
    await expect(locks.acquire('a', unknown)).rejects.toThrow(/'confirmed' or 'sent'/);
  });
});
