import { jest } from '@jest/globals';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { CombinedProvider } from '../../lib/providers/combined/combined-provider.js';
import type { CombinedProviderOptions } from '../../lib/providers/combined/combined-options.js';
import { Holding } from '../../lib/providers/combined/holding.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { startEngine, watch } from '../core/engine-rig.js';
import { DistantMemoryProvider } from '../contract/memory-backend.js';
import { ScriptedProvider } from '../core/scripted-provider.js';

const down = () => {
  throw new LockUnavailableError('down');
};
/** An engine that answers the probe of the start, and then what the test says. */
function scripted(): ScriptedProvider {
  const engine = new ScriptedProvider();
  engine.onRelease = () => 'lost';
  return engine;
}

function combine(quorum: CombinedProviderOptions['quorum'], engines: Readonly<Record<string, LockProvider>>) {
  const all = new CombinedProvider({ engines: Object.keys(engines), quorum });
  return startEngine({ providers: { all, ...engines }, default: 'all', shutdownGrace: 0 });
}

async function stop(locks: LockManager, clock: FakeClock): Promise<void> {
  const stopped = locks.stop();
  await clock.advance(10_000);
  await stopped;
}

/** Lets all that is not waiting for time happen. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe("CombinedProvider, quorum 'all'", () => {
  it('asks in the configured order, and the next engine only when the one before has granted', async () => {
    const [a, b] = [scripted(), scripted()];
    const { locks, clock } = await combine('all', { a, b });
    const lock = locks.acquire('order');
    await settle();
    expect([a.asks.length, b.asks.length]).toEqual([1, 0]);
    a.asks[0]?.grant();
    await settle();
    b.asks[0]?.grant();
    expect((await lock).isHeld()).toBe(true);
    await stop(locks, clock);
  });

  it('gives back what it has until that is confirmed, when the next engine was never asked', async () => {
    const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { locks, clock } = await combine('all', engines);
    engines.b.onAcquire = () => {
      throw new LockUnavailableError('not connected', { sent: false });
    };
    const gone: string[] = [];
    engines.a.onRelease = ({ holder }) => (gone.push(holder), gone.length < 3 ? 'unknown' : 'released');
    const attempt = watch(locks.tryAcquire('order'));
    await clock.advance(5_000);
    expect(attempt.error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(gone).toHaveLength(3);
    await stop(locks, clock);
  });

  it('gives back what it has, the last one first, when an engine is busy', async () => {
    const said: string[] = [];
    const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const { locks, clock } = await combine('all', engines);
    engines.c.onAcquire = () => 'busy';
    for (const [name, engine] of Object.entries(engines)) {
      engine.onRelease = ({ key }) => (said.push(`${name} ${key}`), 'released');
    }
    expect(await locks.tryAcquire('order')).toBeNull();
    expect(said).toEqual(['c order', 'b order', 'a order']);
    await stop(locks, clock);
  });

  it('goes on with the same inner ids when an engine did not answer, and with new ones after they were released', async () => {
    const [a, b] = [ScriptedProvider.obliging(), ScriptedProvider.obliging()];
    const { locks, clock } = await combine('all', { a, b });
    const ids: string[] = [];
    let failures = 1;
    b.onAcquire = (request, grant) => {
      ids.push(request.holder);
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
    await stop(locks, clock);
  });

  it('is valid as long as the engine with the shortest lease says', async () => {
    const [a, b] = [ScriptedProvider.obliging(), ScriptedProvider.obliging()];
    const { locks, clock } = await combine('all', { a, b });
    b.onAcquire = (_, grant) => ({ ...grant(), lease: 5_000, validUntil: clock.now() + 4_000 });
    const lock = await locks.acquire('order');
    expect(lock.remaining()).toBe(4_000);
    expect(lock.fencingToken).toBeNull();
    await stop(locks, clock);
  });

  it('keeps the first engine while it waits for the second, for much longer than a lease', async () => {
    const table = new LockTable();
    const engines = {
      a: new MemoryLockProvider(),
      b: new MemoryLockProvider({ table }),
      other: new MemoryLockProvider({ table }),
    };
    const all = new CombinedProvider({ engines: ['a', 'b'], quorum: 'all' });
    const { locks, clock } = await startEngine({ providers: { all, ...engines }, default: 'all', shutdownGrace: 0 });
    const inTheWay = await locks.acquire('order', { provider: 'other', lease: '10m', renew: false });
    const lock = watch(locks.acquire('order', { wait: Infinity, lease: '6s' }));
    await clock.advance(60_000);
    expect(await locks.tryAcquire('order', { provider: 'a' })).toBeNull();
    await inTheWay.release();
    await clock.advance(1);
    expect(lock.value?.remaining()).toBeGreaterThan(3_000);
    await stop(locks, clock);
  });

  it('begins anew when the first engine is lost while it waits for the second', async () => {
    const [first, second] = [new LockTable(), new LockTable()];
    const engines = {
      a: new MemoryLockProvider({ table: first }),
      b: new MemoryLockProvider({ table: second }),
      aToo: new MemoryLockProvider({ table: first }),
      bToo: new MemoryLockProvider({ table: second }),
    };
    const all = new CombinedProvider({ engines: ['a', 'b'], quorum: 'all' });
    const { locks, clock } = await startEngine({ providers: { all, ...engines }, default: 'all', shutdownGrace: 0 });
    const inB = await locks.acquire('order', { provider: 'bToo', lease: '10m' });
    const lock = watch(locks.acquire('order', { wait: Infinity, lease: '6s' }));
    await clock.advance(1);
    await locks.forceRelease('order', 'a');
    const inA = await locks.acquire('order', { provider: 'aToo', lease: '10m' });
    await inB.release();
    await clock.advance(3_000);
    expect(lock.state).toBe('pending');
    await inA.release();
    await clock.advance(1);
    expect(lock.value?.isHeld()).toBe(true);
    await stop(locks, clock);
  });

  it('does not go on waiting for the second engine when the first is lost', async () => {
    const [a, b] = [ScriptedProvider.obliging(), scripted()];
    const { locks, clock } = await combine('all', { a, b });
    let inA = '';
    a.onAcquire = ({ holder }, grant) => ((inA = holder), grant());
    const lock = watch(locks.acquire('order', { wait: 60_000, lease: '6s' }));
    await clock.advance(1);
    const [first] = b.asks;
    b.context.emit({ type: 'waiting', holder: first?.input.holder ?? '' });
    first?.input.signal.addEventListener('abort', () => {
      first.answer('busy');
    });
    a.context.emit({ type: 'lost', holder: inA });
    await clock.advance(3_000);
    expect(first?.input.signal.aborted).toBe(true);
    expect(a.order.filter((call) => call === 'acquire order')).toHaveLength(2);
    b.asks[1]?.grant();
    await clock.advance(1);
    expect(lock.value?.isHeld()).toBe(true);
    await stop(locks, clock);
  });

  it('is lost at once when one engine loses it, and keeps others out of the other one as long as its holder was told', async () => {
    const engines = { a: new MemoryLockProvider(), b: new MemoryLockProvider() };
    const { locks, clock } = await combine('all', engines);
    const lock = await locks.acquire('order', { lease: '9s' });
    const told = lock.remaining();
    await locks.forceRelease('order', 'a');
    await settle();
    expect(lock.signal.aborted).toBe(true);
    await clock.advance(told - 10);
    expect(await locks.tryAcquire('order')).toBeNull();
    await clock.advance(20);
    expect(await locks.tryAcquire('order')).not.toBeNull();
    await stop(locks, clock);
  });

  it('keeps the lock of an engine that it shares with a reader of that engine alone, also after a renewal', async () => {
    const tables = [new LockTable(), new LockTable()];
    const queued = (table: LockTable) => new DistantMemoryProvider(table, 'engine');
    const process = () => combine('all', { a: queued(tables[0]!), b: queued(tables[1]!) });
    const [one, two] = [await process(), await process()];
    const writer = await two.locks.acquire('k');
    // In the queue of the engine the two stand together, and enter as one.
    const readers = ['all', 'a'].map((provider) => one.locks.acquire('k', { provider, mode: 'shared', wait: 10_000 }));
    await settle();
    await writer.release();
    await one.clock.advance(1_000);
    const [first, second] = await Promise.all(readers);
    await one.clock.advance(20_000);
    await first?.release();
    expect(tables[0]?.look('lock:k')).toBeDefined();
    expect(await two.locks.tryAcquire('k')).toBeNull();
    expect(second?.isHeld()).toBe(true);
    await second?.release();
    expect(await two.locks.tryAcquire('k')).not.toBeNull();
    await Promise.all([one, two].map(({ locks, clock }) => stop(locks, clock)));
  });

  it('frees at once what an engine cannot park', async () => {
    const engines = {
      a: ScriptedProvider.obliging(),
      b: ScriptedProvider.obliging({ minHold: false }),
    };
    const { locks, clock } = await combine('all', engines);
    const kept: number[] = [];
    engines.b.onRelease = (_, { keepFor }) => (kept.push(keepFor), 'released');
    engines.a.onRenew = () => Promise.resolve('lost');
    const lock = await locks.acquire('order', { lease: '9s' });
    await clock.advance(3_100);
    expect(lock.signal.aborted).toBe(true);
    expect(kept).toEqual([0]);
    await stop(locks, clock);
  });

  it.each([
    ['lost', 'lost in one engine is lost'],
    ['unknown', 'not answered by one engine is retried, and lost at the deadline'],
  ] as const)('a renewal that is %s: %s', async (outcome, _) => {
    const [a, b] = [ScriptedProvider.obliging(), ScriptedProvider.obliging()];
    const { locks, clock } = await combine('all', { a, b });
    const lock = await locks.acquire('order', { lease: '9s' });
    b.onRenew = () => Promise.resolve(outcome);
    await clock.advance(3_100);
    expect(lock.signal.aborted).toBe(outcome === 'lost');
    await clock.advance(6_000);
    expect(lock.signal.aborted).toBe(true);
    await stop(locks, clock);
  });

  it('does not wait for the outcome of another lock that is renewed in the same tick', async () => {
    const [a, b] = [ScriptedProvider.obliging(), ScriptedProvider.obliging()];
    const { locks, clock } = await combine('all', { a, b });
    const [silent, answered] = [
      await locks.acquire('silent', { lease: '9s' }),
      await locks.acquire('answered', { lease: '9s' }),
    ];
    b.onRenew = (renewal) =>
      renewal.grant.key === 'silent' ? new Promise(() => undefined) : Promise.resolve(b.acknowledge(renewal));
    await clock.advance(18_000);
    expect([silent.isHeld(), answered.isHeld()]).toEqual([false, true]);
    await stop(locks, clock);
  });

  it.each(['a', 'b'] as const)(
    'is released when a renewal in engine %s is overtaken by the release, and answered first',
    async (name) => {
      const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
      const { locks, clock } = await combine('all', engines);
      const engine = engines[name];
      engine.onRenew = undefined;
      engine.onRelease = undefined;
      const lock = await locks.acquire('order', { lease: '9s' });
      await clock.advance(3_100);
      const released = lock.release();
      await settle();
      engine.renewals[0]?.answer('lost');
      await settle();
      engine.releases[0]?.answer('released');
      expect(await released).toBe('released');
      await stop(locks, clock);
    },
  );

  it('does not look through all that could not be given back for each caller', async () => {
    const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { locks, clock } = await combine('all', engines);
    engines.b.onAcquire = down;
    engines.b.onRelease = () => 'unknown';
    const refused = Array.from({ length: 300 }, (_, index) => watch(locks.tryAcquire(`k${index}`)));
    await clock.advance(2_000);
    expect(refused.every(({ error }) => error instanceof LockUnavailableError)).toBe(true);
    const looks = jest.spyOn(Holding.prototype, 'left');
    for (let caller = 0; caller < 100; caller += 1) watch(locks.tryAcquire(`again${caller}`));
    await settle();
    expect(looks.mock.calls.length).toBeLessThan(1_000);
    looks.mockRestore();
    await stop(locks, clock);
  });

  it('does not start while an engine does not answer', async () => {
    const b = new ScriptedProvider();
    b.onRelease = () => 'unknown';
    await expect(combine('all', { a: scripted(), b })).rejects.toThrow(
      'Lock provider "all" needs 2 of its engines, but "b" did not answer.',
    );
  });

  it('promises what all engines promise', async () => {
    const all = new CombinedProvider({ engines: ['a', 'b'], quorum: 'all' });
    const b = new ScriptedProvider({ shared: false, lease: 'session', maxLease: 5_000, queue: 'engine' });
    b.onRelease = () => 'lost';
    const { locks, clock } = await startEngine({ providers: { all, a: new MemoryLockProvider(), b }, default: 'all' });
    expect(all.capabilities).toEqual({
      ...{ shared: false, fair: true, fencing: false, lease: 'session' },
      ...{ maxLease: 5_000, minHold: true, forceRelease: false, queue: 'engine' },
    });
    await stop(locks, clock);
  });
});

describe("CombinedProvider, quorum 'majority'", () => {
  const holds = async (locks: LockManager) => {
    const lock = await locks.tryAcquire('order');
    await lock?.release();
    return lock !== null;
  };

  it('holds with one of three down, and is unavailable, not busy, with two', async () => {
    const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const { locks, clock } = await combine('majority', engines);
    engines.a.onAcquire = down;
    expect(await holds(locks)).toBe(true);
    engines.b.onAcquire = down;
    const second = watch(locks.tryAcquire('order'));
    await clock.advance(2_000);
    expect(second.error).toBeInstanceOf(LockUnavailableError);
    await stop(locks, clock);
  });

  it('answers operators without the one that is down', async () => {
    const silent = new Set<string>();
    class Operated extends MemoryLockProvider {
      constructor(private readonly name: string) {
        super();
      }
      override inspect(key: string) {
        return silent.has(this.name) ? down() : super.inspect(key);
      }
      override forceRelease(key: string) {
        return silent.has(this.name) ? down() : super.forceRelease(key);
      }
    }
    const engines = { a: new Operated('a'), b: new Operated('b'), c: new Operated('c') };
    const { locks, clock } = await combine('majority', engines);
    const lock = await locks.acquire('order');
    silent.add('c');
    expect(await locks.inspect('order')).toMatchObject({ state: 'held' });
    expect(await locks.forceRelease('order')).toBe(true);
    expect(await locks.inspect('order')).toBeNull();
    silent.add('b');
    await expect(locks.inspect('order')).rejects.toThrow(LockUnavailableError);
    await expect(locks.forceRelease('order')).rejects.toThrow(LockUnavailableError);
    await lock.release();
    await stop(locks, clock);
  });

  it('does not wait for an engine that does not answer', async () => {
    const engines = { a: scripted(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const { locks, clock } = await combine('majority', engines);
    engines.a.onRelease = undefined;
    engines.a.onRenew = undefined;
    const lock = await locks.acquire('order');
    await lock.extend();
    expect(await lock.release()).toBe('released');
    // What it grants now is given back.
    const before = engines.a.releases.length;
    engines.a.asks[0]?.grant();
    await settle();
    expect(engines.a.releases.length).toBeGreaterThan(before);
    await stop(locks, clock);
  });

  it('gives back the engines that it has when others have more of them', async () => {
    const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const { locks, clock } = await combine('majority', engines);
    engines.b.onAcquire = () => 'busy';
    engines.c.onAcquire = () => 'busy';
    expect(await locks.tryAcquire('order')).toBeNull();
    expect(engines.a.order).toContain('release order');
    await stop(locks, clock);
  });

  it('is lost when fewer than a majority still have it', async () => {
    const engines = { a: new MemoryLockProvider(), b: new MemoryLockProvider(), c: new MemoryLockProvider() };
    const { locks, clock } = await combine('majority', engines);
    const lock = await locks.acquire('order', { lease: '9s' });
    await locks.forceRelease('order', 'a');
    await clock.advance(10_000);
    expect(lock.isHeld()).toBe(true);
    await locks.forceRelease('order', 'b');
    await clock.advance(1);
    expect(lock.signal.aborted).toBe(true);
    await stop(locks, clock);
  });

  it('refuses an engine that gives no fencing tokens, as memcached', () => {
    const engines = { a: scripted(), b: scripted(), cache: new ScriptedProvider({ fencing: false }) };
    return expect(combine('majority', engines)).rejects.toThrow(`cannot count on "cache"`);
  });
});

describe('CombinedProvider refuses', () => {
  it.each([
    ['one engine', { engines: ['a'], quorum: 'all' }, 'at least 2 engines'],
    ['a majority of two', { engines: ['a', 'b'], quorum: 'majority' }, 'at least 3 engines'],
    ['an engine twice', { engines: ['a', 'a'], quorum: 'all' }, 'twice'],
    ['no list of engines', { quorum: 'all' } as never, '"engines" must be a list'],
    ['engines in one text', { engines: 'ab' as never, quorum: 'all' }, '"engines" must be a list'],
    ['an engine without a name', { engines: ['a', undefined as never], quorum: 'all' }, '"engines" must be a list'],
    ['another quorum', { engines: ['a', 'b'], quorum: 'most' as 'all' }, `'all' or 'majority'`],
  ] as const)('%s', (_, options, message) => {
    expect(() => new CombinedProvider(options)).toThrow(LockConfigError);
    expect(() => new CombinedProvider(options)).toThrow(message);
  });
});
