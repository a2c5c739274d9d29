import { getEventListeners } from 'node:events';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { CombinedBackend } from '../../lib/providers/combined/combined-backend.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager, watch } from '../core/manager-rig.js';
import { providerOf } from '../backend-context.js';
import { DistantBackend, DistantProvider } from '../contract/memory-server.js';
import { ScriptedProvider } from '../core/scripted-provider.js';
import { TestFleet } from '../failover/fleet-rig.js';
import { requestFor } from '../direct-backend.js';

const unavailable = () => new LockUnavailableError('down');
const down = () => {
  throw unavailable();
};
/** A provider that responds to the probe at start, and then as the test decides. */
function scripted(): ScriptedProvider {
  const provider = new ScriptedProvider();
  provider.onRelease = () => 'lost';
  return provider;
}

const started: { readonly locks: LockManager; readonly clock: FakeClock }[] = [];
afterEach(async () => {
  for (const { locks, clock } of started.splice(0)) {
    const stopped = locks.stop();
    await clock.advance(10_000);
    await stopped;
  }
});

async function start(options: Parameters<typeof startManager>[0]) {
  const rig = await startManager({ shutdownGrace: 0, ...options });
  started.push(rig);
  return rig;
}

function combine(members: Readonly<Record<string, LockProvider>>) {
  const all = new CombinedLockProvider({ providers: Object.keys(members) });
  return start({ providers: { all, ...members }, default: 'all' });
}

/** Two members that grant and release immediately, unless the test overrides them. */
async function combinePair() {
  const [a, b] = [ScriptedProvider.obliging(), ScriptedProvider.obliging()];
  return { ...(await combine({ a, b })), a, b };
}

/** Lets everything happen that does not wait for time to pass. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('CombinedLockProvider', () => {
  it('requests members in the configured order, each only after the previous one has granted', async () => {
    const [a, b] = [scripted(), scripted()];
    const { locks } = await combine({ a, b });
    const lock = locks.acquire('order');
    await settle();
    expect([a.asks.length, b.asks.length]).toEqual([1, 0]);
    a.asks[0]?.grant();
    await settle();
    b.asks[0]?.grant();
    expect((await lock).isHeld()).toBe(true);
  });

  it("releases what it has until that is confirmed, if the next member's request was never sent", async () => {
    const { locks, clock, a, b } = await combinePair();
    b.onAcquire = () => {
      throw new LockUnavailableError('not connected', { sent: false });
    };
    const gone: string[] = [];
    a.onRelease = ({ id }) => (gone.push(id), gone.length < 3 ? 'unknown' : 'released');
    const attempt = watch(locks.tryAcquire('order'));
    await clock.advance(5_000);
    expect(attempt.error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(gone).toHaveLength(3);
  });

  it('releases what it has in reverse order if a member is busy', async () => {
    const said: string[] = [];
    const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const { locks } = await combine(members);
    members.c.onAcquire = () => 'busy';
    for (const [name, member] of Object.entries(members)) {
      member.onRelease = ({ key }) => (said.push(`${name} ${key}`), 'released');
    }
    expect(await locks.tryAcquire('order')).toBeNull();
    expect(said).toEqual(['b order', 'a order']);
  });

  it('retries with the same inner ids after a member did not respond, and uses new ones after their release', async () => {
    const { locks, clock, a, b } = await combinePair();
    const ids: string[] = [];
    let failures = 1;
    b.onAcquire = (request, grant) => {
      ids.push(request.id);
      return failures-- > 0 ? down() : grant();
    };
    const lock = watch(locks.acquire('order'));
    await settle();
    await clock.advance(100);
    await (await lock.promise).release();
    await (await locks.acquire('order')).release();
    expect(ids).toHaveLength(3);
    expect(ids[1]).toBe(ids[0]);
    expect(ids[2]).not.toBe(ids[0]);
    expect(a.order.filter((call) => call === 'acquire order')).toHaveLength(2);
  });

  it('does not resume a lock that a member granted before the machine was suspended', async () => {
    const { locks, clock, a, b } = await combinePair();
    b.onAcquire = undefined;
    const lock = watch(locks.acquire('order', { wait: Infinity }));
    await clock.advance(1_500);
    clock.suspend(60_000);
    b.asks[0]?.fail(unavailable());
    await clock.advance(50);
    b.asks[1]?.grant();
    await clock.advance(0);
    expect([lock.state, a.order.filter((call) => call === 'release order').length]).toEqual(['pending', 1]);
    await clock.advance(500);
    b.asks[2]?.grant();
    await clock.advance(0);
    expect(lock.value?.isHeld()).toBe(true);
    expect(a.order.filter((call) => call === 'acquire order')).toHaveLength(2);
  });

  it.each([
    ['waits for the second', undefined],
    ['retries the second', down],
  ])("renews the first member's provisional lease in time while it %s", async (_, onAcquire) => {
    const { locks, clock, a, b } = await combinePair();
    a.onAcquire = (__, grant) => grant({ validUntil: clock.now() + 2_900 });
    b.onAcquire = onAcquire;
    const lock = watch(locks.acquire('order', { wait: Infinity, lease: '9s' }));
    await clock.advance(60_000);
    b.onAcquire = (__, grant) => grant();
    for (const { grant } of b.asks) grant();
    await clock.advance(1_000);
    expect(lock.value?.isHeld()).toBe(true);
    expect(a.order.filter((call) => call === 'acquire order')).toHaveLength(1);
    expect(a.order.filter((call) => call === 'renew order').length).toBeLessThanOrEqual(30);
  });

  it('is valid as long as the member with the shortest lease allows', async () => {
    const { locks, clock, b } = await combinePair();
    b.onAcquire = (_, grant) => ({ ...grant(), lease: 5_000, validUntil: clock.now() + 4_000 });
    const lock = await locks.acquire('order');
    expect(lock.remaining()).toBe(4_000);
    expect(lock.fencingToken).toBeNull();
  });

  it('keeps the first member locked while it waits for the second, for much longer than a lease', async () => {
    const store = new MemoryStore();
    const members = {
      a: new MemoryLockProvider(),
      b: new MemoryLockProvider({ store }),
      other: new MemoryLockProvider({ store }),
    };
    const all = new CombinedLockProvider({ providers: ['a', 'b'] });
    const { locks, clock } = await start({ providers: { all, ...members }, default: 'all' });
    const inTheWay = await locks.acquire('order', { provider: 'other', lease: '10m' });
    const lock = watch(locks.acquire('order', { wait: Infinity, lease: '6s' }));
    await clock.advance(60_000);
    expect(await locks.tryAcquire('order', { provider: 'a' })).toBeNull();
    await inTheWay.release();
    await clock.advance(1);
    expect(lock.value?.remaining()).toBeGreaterThan(3_000);
  });

  it('starts over if the first member is lost while it waits for the second', async () => {
    const [first, second] = [new MemoryStore(), new MemoryStore()];
    const members = {
      a: new MemoryLockProvider({ store: first }),
      b: new MemoryLockProvider({ store: second }),
      aToo: new MemoryLockProvider({ store: first }),
      bToo: new MemoryLockProvider({ store: second }),
    };
    const all = new CombinedLockProvider({ providers: ['a', 'b'] });
    const { locks, clock } = await start({ providers: { all, ...members }, default: 'all' });
    const inB = await locks.acquire('order', { provider: 'bToo', lease: '10m' });
    const lock = watch(locks.acquire('order', { wait: Infinity, lease: '6s' }));
    await clock.advance(1);
    await locks.admin.forceRelease('order', 'a');
    const inA = await locks.acquire('order', { provider: 'aToo', lease: '10m' });
    await inB.release();
    await clock.advance(3_000);
    expect(lock.state).toBe('pending');
    await inA.release();
    await clock.advance(1);
    expect(lock.value?.isHeld()).toBe(true);
  });

  it('stops waiting for the second member when the first is lost', async () => {
    const [a, b] = [ScriptedProvider.obliging(), scripted()];
    const { locks, clock } = await combine({ a, b });
    let inA = '';
    a.onAcquire = ({ id }, grant) => ((inA = id), grant());
    const lock = watch(locks.acquire('order', { wait: 60_000, lease: '6s' }));
    await clock.advance(1);
    const [first] = b.asks;
    b.queue(first?.input.id ?? '');
    first?.input.signal.addEventListener('abort', () => {
      first.answer('busy');
    });
    a.revoke(inA);
    await clock.advance(3_000);
    expect(first?.input.signal.aborted).toBe(true);
    expect(a.order.filter((call) => call === 'acquire order')).toHaveLength(2);
    b.asks[1]?.grant();
    await clock.advance(1);
    expect(lock.value?.isHeld()).toBe(true);
  });

  it('is lost immediately if one member loses it, and keeps the other member locked for as long as its holder may rely on it', async () => {
    const members = { a: new MemoryLockProvider(), b: new MemoryLockProvider() };
    const { locks, clock } = await combine(members);
    const lock = await locks.acquire('order', { lease: '9s' });
    const told = lock.remaining();
    await locks.admin.forceRelease('order', 'a');
    await settle();
    expect(lock.signal.aborted).toBe(true);
    await clock.advance(told - 10);
    expect(await locks.tryAcquire('order')).toBeNull();
    await clock.advance(20);
    expect(await locks.tryAcquire('order')).not.toBeNull();
  });

  it("keeps a member's lock for a reader that shares it at that member, even after a renewal", async () => {
    const stores = [new MemoryStore(), new MemoryStore()];
    const queued = (store: MemoryStore) => new DistantProvider(store, DistantBackend, false);
    const process = () => combine({ a: queued(stores[0]!), b: queued(stores[1]!) });
    const [one, two] = [await process(), await process()];
    const writer = await two.locks.acquire('k');
    // Both stand in the same queue of the member, and enter together.
    const readers = ['all', 'a'].map((provider) => one.locks.acquire('k', { provider, mode: 'shared', wait: 10_000 }));
    await settle();
    await writer.release();
    await one.clock.advance(1_000);
    const [first, second] = await Promise.all(readers);
    await one.clock.advance(20_000);
    await first?.release();
    expect(stores[0]?.report('lock:k')).toBeDefined();
    expect(await two.locks.tryAcquire('k')).toBeNull();
    expect(second?.isHeld()).toBe(true);
    await second?.release();
    expect(await two.locks.tryAcquire('k')).not.toBeNull();
  });

  it('releases a member immediately if it cannot retain the key', async () => {
    const members = {
      a: ScriptedProvider.obliging(),
      b: ScriptedProvider.obliging({ minHold: false }),
    };
    const { locks, clock } = await combine(members);
    const kept: number[] = [];
    members.b.onRelease = (_, { keepFor }) => (kept.push(keepFor), 'released');
    members.a.onRenew = () => Promise.resolve('lost');
    const lock = await locks.acquire('order', { lease: '9s' });
    await clock.advance(3_100);
    expect(lock.signal.aborted).toBe(true);
    expect(kept).toEqual([0]);
  });

  it.each([
    ['lost', 'means that the lock is lost'],
    ['unknown', 'is retried, and means a loss at the deadline'],
  ] as const)('a renewal that one member reports as %s %s', async (outcome, _) => {
    const { locks, clock, b } = await combinePair();
    const lock = await locks.acquire('order', { lease: '9s' });
    b.onRenew = () => Promise.resolve(outcome);
    await clock.advance(3_100);
    expect(lock.signal.aborted).toBe(outcome === 'lost');
    await clock.advance(6_000);
    expect(lock.signal.aborted).toBe(true);
  });

  it('does not wait for another lock renewed in the same tick', async () => {
    const { locks, clock, b } = await combinePair();
    const [silent, answered] = [
      await locks.acquire('silent', { lease: '9s' }),
      await locks.acquire('answered', { lease: '9s' }),
    ];
    b.onRenew = (renewal) =>
      renewal.request.key === 'silent' ? new Promise(() => undefined) : Promise.resolve(b.acknowledge(renewal));
    await clock.advance(18_000);
    expect([silent.isHeld(), answered.isHeld()]).toEqual([false, true]);
  });

  it.each(['a', 'b'] as const)(
    "resolves a release that overtakes a renewal in member %s, even if the renewal's response comes first",
    async (name) => {
      const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
      const { locks, clock } = await combine(members);
      const member = members[name];
      member.onRenew = undefined;
      member.onRelease = undefined;
      const lock = await locks.acquire('order', { lease: '9s' });
      await clock.advance(3_100);
      const released = lock.release();
      await settle();
      member.renewals[0]?.answer('lost');
      await settle();
      member.releases[0]?.answer('released');
      expect(await released).toBe('released');
    },
  );

  it('reports a loss before silent members respond, for a renewal and for a release', async () => {
    const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { locks, clock, names } = await combine(members);
    members.a.onRenew = () => new Promise(() => undefined);
    members.b.onRenew = () => Promise.resolve('lost');
    const renewed = await locks.acquire('renewed', { lease: '9s' });
    await clock.advance(3_100);
    expect(renewed.signal.aborted).toBe(true);
    members.a.onRelease = () => new Promise(() => undefined);
    members.b.onRelease = () => 'lost';
    const released = await locks.acquire('released', { lease: '9s' });
    expect(await released.release()).toBe('lost');
    expect(names().filter((name) => name === 'lost')).toHaveLength(2);
  });

  it('leaves retries of a release to the core, separately for each member without a response', async () => {
    const { locks, clock, a, b } = await combinePair();
    const lock = await locks.acquire('order', { lease: '30s' });
    let releases = 0;
    b.onRelease = () => ((releases += 1), 'unknown');
    expect(await lock.release()).toBe('pending');
    await clock.advance(20_000);
    // About one per second.
    expect(releases).toBeGreaterThan(15);
    expect(releases).toBeLessThan(45);
    b.onRelease = () => ((releases += 1), 'released');
    await clock.advance(1_100);
    const before = releases;
    await clock.advance(20_000);
    expect(releases).toBe(before);
    expect(a.order.filter((call) => call === 'release order')).toHaveLength(1);
  });

  it('retries the release of an extended lock for as long as the extended lease may last', async () => {
    const { locks, clock, b } = await combinePair();
    const lock = await locks.acquire('order', { lease: 1_000 });
    await lock.extend(60_000);
    b.onRelease = () => 'unknown';
    const releasing = watch(lock.release());
    await clock.advance(30_000);
    expect(releasing.state).toBe('fulfilled');
    const releases = () => b.order.filter((call) => call === 'release order').length;
    const before = releases();
    await clock.advance(20_000);
    expect(releases()).toBeGreaterThan(before);
    await clock.advance(60_000);
    const after = releases();
    await clock.advance(20_000);
    expect(releases()).toBe(after);
  });

  it('releases a request if any attempt was sent, even if a later one was not', async () => {
    const { locks, clock, a } = await combinePair();
    let asks = 0;
    a.onAcquire = () => {
      asks += 1;
      throw new LockUnavailableError('down', { sent: asks === 1 });
    };
    let releases = 0;
    a.onRelease = () => ((releases += 1), 'unknown');
    const attempt = watch(locks.acquire('order', { wait: 500, lease: '30s' }));
    await clock.advance(2_000);
    expect(attempt.error).toBeInstanceOf(LockUnavailableError);
    expect(asks).toBeGreaterThan(1);
    releases = 0;
    await clock.advance(10_000);
    expect(releases).toBeGreaterThan(5);
  });

  it('leaves no listener on the signals of its requests', async () => {
    // In a member's queue, a request that may share another's response listens for its caller's abort.
    const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const signals = new Set<AbortSignal>();
    for (const member of Object.values(members)) {
      member.onAcquire = ({ signal }, grant) => {
        signal.addEventListener('abort', () => undefined);
        signals.add(signal);
        return grant();
      };
    }
    const { locks } = await combine(members);
    for (let round = 0; round < 20; round += 1) await (await locks.acquire('k')).release();
    const listeners = [...signals].map((signal) => getEventListeners(signal, 'abort').length);
    expect(Math.max(...listeners)).toBeLessThanOrEqual(3);
  });

  it('is inspected as held if any member has the key, and force-released in the members that respond', async () => {
    const silent = new Set<string>();
    const operated = (name: string) =>
      providerOf((context) => {
        const backend = new MemoryLockProvider().createBackend(context);
        const forceRelease = backend.forceRelease?.bind(backend);
        return Object.assign(backend, {
          forceRelease: (key: string) => (silent.has(name) ? Promise.reject(unavailable()) : forceRelease!(key)),
        });
      });
    const { locks } = await combine({ a: operated('a'), b: operated('b') });
    const alone = await locks.acquire('order', { provider: 'b' });
    expect(await locks.admin.inspect('order')).toMatchObject({ state: 'held', fencingToken: null });
    await alone.release();
    expect(await locks.admin.inspect('order')).toBeNull();
    const lock = await locks.acquire('order');
    silent.add('b');
    expect(await locks.admin.forceRelease('order')).toBe(true);
    expect(lock.isHeld()).toBe(false);
    silent.add('a');
    await expect(locks.admin.forceRelease('order')).rejects.toThrow(LockUnavailableError);
  });

  it('does not start while a member does not respond', async () => {
    const b = new ScriptedProvider();
    b.onRelease = () => 'unknown';
    await expect(combine({ a: scripted(), b })).rejects.toThrow(
      'Lock provider "all" needs all of its providers, but "b" did not respond.',
    );
  });

  it('supports what all members support', async () => {
    const all = new CombinedLockProvider({ providers: ['a', 'b'] });
    const b = new ScriptedProvider({ shared: false, lease: 'session', maxLease: 5_000 });
    b.onRelease = () => 'lost';
    const { locks } = await start({ providers: { all, a: new MemoryLockProvider(), b }, default: 'all' });
    expect(locks.admin.backend(CombinedBackend, 'all').capabilities).toEqual({
      ...{ shared: false, fair: true, fencing: false, lease: 'session' },
      ...{ maxLease: 5_000, minHold: true, forceRelease: false },
    });
  });
});

describe('CombinedLockProvider rejects', () => {
  it.each<[string, object, string]>([
    ['one provider', { providers: ['a'] }, '"providers" is a, but must name at least two'],
    ['a provider twice', { providers: ['a', 'a'] }, '"providers" is a, a, but must name at least two'],
    ['a missing list of providers', {}, 'must be a list of lock provider names'],
    ['providers in one string', { providers: 'ab' }, 'must be a list of lock provider names'],
    ['a provider without a name', { providers: ['a', undefined] }, 'must be a list of lock provider names'],
    ['a quorum', { providers: ['a', 'b', 'c'], quorum: 2 }, 'there is no option "quorum": remove it'],
  ])('%s', (_, options, message) => {
    expect(() => new CombinedLockProvider(options as never)).toThrow(LockConfigError);
    expect(() => new CombinedLockProvider(options as never)).toThrow(message);
  });
});

describe('CombinedLockProvider after a member did not respond', () => {
  it('keeps waiting at a member that is a failover provider', async () => {
    const fleet = new TestFleet();
    const all = new CombinedLockProvider({ providers: ['main', 'c'] });
    const other = await fleet.start();
    const { locks, a } = await fleet.start({}, { all, c: new MemoryLockProvider() });
    const inTheWay = await fleet.drive(other.locks.acquire('k'));
    const lock = watch(locks.acquire('k', { provider: 'all', wait: 60_000 }));
    await fleet.clock.advance(100);
    a.cable.cutOff();
    await fleet.clock.advance(1);
    a.cable.restore();
    await fleet.clock.advance(5_000);
    expect(lock.error).toBeUndefined();
    await inTheWay.release();
    await fleet.clock.advance(1_000);
    expect(lock.value?.isHeld()).toBe(true);
    await lock.value?.release();
    await fleet.stop();
  });

  it('keeps a new grant even if an earlier release completes late', async () => {
    const { locks, clock, a, b } = await combinePair();
    let inA = '';
    a.onAcquire = ({ id }, grant) => ((inA = id), grant());
    // The first member grants and loses the lock while the second is waited for, and does not respond to its release.
    b.onAcquire = undefined;
    a.onRelease = () => ((a.onRelease = () => 'released'), 'unknown');
    const lock = watch(locks.acquire('x', { lease: '9s', wait: 10_000 }));
    await clock.advance(100);
    const [first] = b.asks;
    first?.input.signal.addEventListener('abort', () => {
      first.answer('busy');
    });
    b.onAcquire = (_, grant) => grant();
    a.revoke(inA);
    await clock.advance(1_000);
    expect(lock.value?.isHeld()).toBe(true);
    await (await locks.acquire('y')).release();
    await clock.advance(20_000);
    expect(lock.value?.isHeld()).toBe(true);
    expect(await lock.value?.release()).toBe('released');
  });

  it('waits only as long as the retry allows', async () => {
    const { locks, a } = await combinePair();
    const all = locks.admin.backend(CombinedBackend, 'all');
    let wait = 5_000;
    const request = Object.defineProperty(requestFor('k', 'h'), 'wait', { get: () => wait });
    a.onAcquire = down;
    await expect(all.acquire(request)).rejects.toThrow(LockUnavailableError);
    const waits: number[] = [];
    a.onAcquire = ({ wait }) => (waits.push(wait), 'busy');
    wait = 0;
    expect(await all.acquire(request)).toBe('busy');
    expect(waits).toEqual([0]);
  });
});

describe('CombinedLockProvider when its caller leaves', () => {
  it('does not start over after the core has released the attempt', async () => {
    const { locks, clock, a, b } = await combinePair();
    const heldInA = new Set<string>();
    let inA = '';
    a.onAcquire = ({ id }, grant) => (heldInA.add(id), (inA = id), grant());
    a.onRelease = ({ id }) => (heldInA.delete(id) ? 'released' : 'lost');
    b.onAcquire = undefined;
    b.onRelease = () => new Promise((resolve) => clock.setTimer(() => resolve('released'), 2_000));
    const lock = watch(locks.acquire('x', { lease: '30s', wait: 500 }));
    await clock.advance(10);
    const [first] = b.asks;
    first?.input.signal.addEventListener('abort', () => {
      first.answer('busy');
    });
    await clock.advance(300);
    // The first member's lock is lost, and the release in the second takes longer than the caller waits.
    a.revoke(inA);
    heldInA.delete(inA);
    b.onAcquire = down;
    await clock.advance(25_000);
    expect(lock.state).toBe('rejected');
    expect(heldInA.size).toBe(0);
  });

  it('renews what it holds only once per third of its lease while it waits, however many members follow', async () => {
    const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const { locks, clock } = await combine(members);
    members.c.onAcquire = undefined;
    watch(locks.acquire('x', { lease: '30s', wait: 100_000 }));
    await clock.advance(10);
    let renewals = 0;
    members.a.onRenew = (renewal) => ((renewals += 1), Promise.resolve(members.a.acknowledge(renewal)));
    await clock.advance(60_000);
    expect(renewals).toBe(6);
  });
});
