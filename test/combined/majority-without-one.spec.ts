import { getEventListeners } from 'node:events';
import type { LockManager } from '../../lib/core/lock-manager.js';
import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import { LockTimeoutError, LockUnavailableError } from '../../lib/api/errors.js';
import { CombinedProvider } from '../../lib/providers/combined/combined-provider.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { startEngine, watch } from '../core/engine-rig.js';
import { ScriptedProvider } from '../core/scripted-provider.js';

const LEASE = 10_000;
const down = () => {
  throw new LockUnavailableError('down');
};
const never = () => new Promise<never>(() => undefined);

/** A majority of `a`, `b` and `c`; `asked` and `released` are the ids that `c` gets, in order. */
async function trio() {
  const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
  const all = new CombinedProvider({ engines: ['a', 'b', 'c'], quorum: 'majority' });
  const { locks, clock } = await startEngine({ providers: { all, ...engines }, default: 'all', shutdownGrace: 0 });
  return { ...engines, locks, clock };
}

/** Somebody else has the lock in these engines. */
function take(...engines: readonly ScriptedProvider[]): void {
  for (const engine of engines) engine.onAcquire = () => 'busy';
}

/** They are asked in vain; answers the ids they are asked for, and those they are told to release. */
function cut(engine: ScriptedProvider) {
  const asked: string[] = [];
  const released: string[] = [];
  engine.onAcquire = ({ holder }: AcquireRequest) => (asked.push(holder), down());
  engine.onRelease = ({ holder }) => (released.push(holder), 'unknown');
  return { asked, released };
}

async function stop(locks: LockManager, clock: FakeClock): Promise<void> {
  const stopped = locks.stop();
  await clock.advance(10_000);
  await stopped;
}

describe("CombinedProvider, quorum 'majority', with one of three engines silent", () => {
  it.each(['fails', 'hangs'])('answers busy at once when the others have refused and it %s', async (how) => {
    const { locks, clock, a, b, c } = await trio();
    take(a, b);
    cut(c);
    if (how === 'hangs') {
      c.onAcquire = never;
      c.onRelease = never;
    }
    const busy = watch(locks.tryAcquire('k'));
    const waiter = watch(locks.acquire('k', { wait: 2_000 }));
    await clock.advance(1);
    expect(busy).toMatchObject({ state: 'fulfilled', value: null });
    await clock.advance(1_998);
    expect(waiter.state).toBe('pending');
    await clock.advance(1);
    expect(waiter.error).toBeInstanceOf(LockTimeoutError);
    await stop(locks, clock);
  });

  it('is unavailable when one of the others grants: who has the lock is not known then', async () => {
    const { locks, clock, a, c } = await trio();
    take(a);
    cut(c);
    const asked = watch(locks.tryAcquire('k'));
    await clock.advance(2_000);
    expect(asked.error).toBeInstanceOf(LockUnavailableError);
    await stop(locks, clock);
  });

  it('tries one part a second, however many were refused, and gives back all when it confirms that', async () => {
    const { locks, clock, a, b, c } = await trio();
    take(a, b);
    const { asked, released } = cut(c);
    for (let caller = 0; caller < 100; caller += 1) await locks.tryAcquire('k', { lease: 60_000 });
    released.length = 0;
    await clock.advance(30_000);
    expect(released.length).toBeLessThanOrEqual(60);
    c.onRelease = ({ holder }) => (released.push(holder), 'released');
    await clock.advance(1_000);
    expect(new Set(released)).toEqual(new Set(asked));
    await stop(locks, clock);
  });

  it('gives back in the background what it may have granted to who was refused, until it confirms that', async () => {
    const { locks, clock, a, b, c } = await trio();
    take(a, b);
    const { asked, released } = cut(c);
    expect(await locks.tryAcquire('k')).toBeNull();
    await clock.advance(LEASE / 2);
    expect(new Set(released)).toEqual(new Set(asked));
    const before = released.length;
    expect(before).toBeGreaterThan(3);
    c.onRelease = ({ holder }) => (released.push(holder), 'lost');
    await clock.advance(LEASE);
    expect(released).toHaveLength(before + 1);
    await stop(locks, clock);
  });

  it('is given back what it confirms, though it never answers for another key', async () => {
    const { locks, clock, a, b, c } = await trio();
    take(a, b);
    const { asked, released } = cut(c);
    expect(await locks.tryAcquire('silent', { lease: '1h' })).toBeNull();
    expect(await locks.tryAcquire('k', { lease: '1h' })).toBeNull();
    released.length = 0;
    c.onRelease = ({ key, holder }) => (key === 'silent' ? 'unknown' : (released.push(holder), 'released'));
    await clock.advance(5_000);
    expect(released).toEqual([asked[1]]);
    await stop(locks, clock);
  });

  it('forgets what it may have granted when the lease of that is over', async () => {
    const { locks, clock, a, b, c } = await trio();
    take(a, b);
    const { released } = cut(c);
    expect(await locks.tryAcquire('k', { lease: LEASE })).toBeNull();
    await clock.advance(LEASE + 1_000);
    const before = released.length;
    await clock.advance(LEASE);
    expect(released).toHaveLength(before);
    await stop(locks, clock);
  });

  it('is asked anew only once what it was asked before is over, however long somebody waits', async () => {
    const { locks, clock, a, b, c } = await trio();
    take(a, b);
    const { asked, released } = cut(c);
    const waiter = watch(locks.acquire('k', { wait: Infinity, lease: LEASE }));
    await clock.advance(10 * LEASE);
    expect(asked.length).toBeGreaterThan(5);
    expect(asked.length).toBeLessThanOrEqual(11);
    expect(new Set(asked).size).toBe(asked.length);
    a.onAcquire = b.onAcquire = (_, grant) => grant();
    await clock.advance(1_000);
    released.length = 0;
    expect(await waiter.value?.release()).toBe('released');
    expect(released.length).toBeLessThanOrEqual(1);
    await stop(locks, clock);
  });

  it('counts again as soon as it confirms that nothing is left', async () => {
    const { locks, clock, a, b, c } = await trio();
    take(a, b);
    const { asked } = cut(c);
    const waiter = watch(locks.acquire('k', { wait: Infinity, lease: LEASE }));
    await clock.advance(1_000);
    expect(asked).toHaveLength(1);
    a.onAcquire = (_, grant) => grant();
    c.onRelease = () => 'lost';
    c.onAcquire = ({ holder }, grant) => (asked.push(holder), grant());
    await clock.advance(1_000);
    expect(waiter.value?.isHeld()).toBe(true);
    expect(asked).toHaveLength(2);
    expect(asked[1]).not.toBe(asked[0]);
    await stop(locks, clock);
  });

  it('is told once a second to release what somebody has left who waited for long', async () => {
    const { locks, clock, a, b, c } = await trio();
    take(a);
    b.onAcquire = down;
    const { released } = cut(c);
    const waiter = watch(locks.acquire('k', { wait: 60_000, lease: LEASE }));
    await clock.advance(62_000);
    expect(waiter.error).toBeInstanceOf(LockUnavailableError);
    released.length = 0;
    await clock.advance(60_000);
    expect(released.length).toBeLessThan(25);
    await stop(locks, clock);
  });

  it('gives back in the background what a release could not reach, parked as it was to be', async () => {
    const { locks, clock, c } = await trio();
    const lock = await locks.acquire('k', { lease: '1h', minHold: 60_000 });
    const { released } = cut(c);
    expect(await lock.release()).toBe('released');
    await clock.advance(30_000);
    expect(released.length).toBeGreaterThan(10);
    const kept: number[] = [];
    c.onRelease = (_, { keepFor }) => (kept.push(keepFor), 'released');
    await clock.advance(60_000);
    expect(kept).toHaveLength(1);
    expect(kept[0]).toBeGreaterThan(28_000);
    expect(kept[0]).toBeLessThanOrEqual(30_000);
    await stop(locks, clock);
  });

  it.each(['says so', 'answers so when it is asked'])(
    'has lost a lock when another one has it no more and %s, and the silent one may have let it go long ago',
    async (how) => {
      const { locks, clock, b, c } = await trio();
      let inB = '';
      b.onAcquire = ({ holder }, grant) => ((inB = holder), grant());
      const lock = await locks.acquire('k', { lease: LEASE });
      c.onRenew = () => Promise.resolve('unknown');
      await clock.advance(2 * LEASE);
      expect(lock.isHeld()).toBe(true);
      if (how === 'says so') b.context.emit({ type: 'lost', holder: inB });
      else {
        b.onRenew = () => Promise.resolve('lost');
        await lock.extend().catch(() => undefined);
      }
      await clock.advance(1);
      expect(lock.isHeld()).toBe(false);
      await stop(locks, clock);
    },
  );

  it('does not count for the others an engine that has renewed a lock and lost it since', async () => {
    const { locks, clock, a, b, c } = await trio();
    let inB = '';
    b.onAcquire = ({ holder }, grant) => ((inB = holder), grant());
    const lock = await locks.acquire('k', { lease: 9_000 });
    const until = lock.remaining();
    c.onRenew = never;
    a.onRenew = async (renewal) => {
      await new Promise<void>((resolve) => clock.setTimer(resolve, 200));
      return a.acknowledge(renewal);
    };
    await clock.advance(3_050);
    b.context.emit({ type: 'lost', holder: inB });
    await clock.advance(until - 3_050 + 1);
    expect(lock.isHeld()).toBe(false);
    await stop(locks, clock);
  });

  describe('renews', () => {
    /** `x` has lost its part in `a`, so it needs `c`, which answers renewals after `delay` ms; `y` does without. */
    async function holdBoth(lease: number, delay: number, outcome: 'renewed' | 'unknown') {
      const { locks, clock, a, c } = await trio();
      let xInA = '';
      a.onAcquire = (request, grant) => {
        if (request.key === 'x') xInA = request.holder;
        return grant();
      };
      const y = await locks.acquire('y', { lease });
      const x = await locks.acquire('x', { lease });
      a.context.emit({ type: 'lost', holder: xInA });
      c.onRenew = (renewal) => {
        const answer = outcome === 'renewed' ? c.acknowledge(renewal) : outcome;
        return new Promise((resolve) => {
          clock.setTimer(() => {
            resolve(answer);
          }, delay);
        });
      };
      return { locks, clock, x, y };
    }

    it('a lock that the others keep, in time, though another one that is renewed at the same time needs it', async () => {
      const { locks, clock, x, y } = await holdBoth(3_000, 2_500, 'unknown');
      await clock.advance(1_600);
      expect(y.remaining()).toBeGreaterThan(2_000);
      await clock.advance(10_000);
      expect([x.isHeld(), y.isHeld()]).toEqual([false, true]);
      await stop(locks, clock);
    });

    it('a lock that needs it as long as its answers come in time', async () => {
      const { locks, clock, x, y } = await holdBoth(12_000, 1_900, 'renewed');
      await clock.advance(60_000);
      expect([x.isHeld(), y.isHeld()]).toEqual([true, true]);
      await stop(locks, clock);
    });
  });
});

describe('CombinedProvider', () => {
  it('leaves no listener behind in the signals of its asks', async () => {
    // In the queue of an engine, an ask that may share the answer to another one listens whether its caller leaves.
    const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const signals = new Set<AbortSignal>();
    for (const engine of Object.values(engines)) {
      engine.onAcquire = ({ signal }, grant) => {
        signal.addEventListener('abort', () => undefined);
        signals.add(signal);
        return grant();
      };
    }
    const all = new CombinedProvider({ engines: ['a', 'b', 'c'], quorum: 'majority' });
    const { locks, clock } = await startEngine({ providers: { all, ...engines }, default: 'all', shutdownGrace: 0 });
    for (let round = 0; round < 20; round += 1) await (await locks.acquire('k')).release();
    const listeners = [...signals].map((signal) => getEventListeners(signal, 'abort').length);
    expect(Math.max(...listeners)).toBeLessThanOrEqual(3);
    await stop(locks, clock);
  });

  it('gives back what was extended until that lease is over', async () => {
    const { locks, clock, a, b, c } = await trio();
    const lock = await locks.acquire('k', { lease: LEASE });
    await lock.extend(10 * LEASE);
    let released = 0;
    for (const engine of [a, b, c]) engine.onRelease = () => ((released += 1), 'unknown');
    const release = watch(lock.release());
    await clock.advance(2 * LEASE);
    expect(release.value).toBe('unconfirmed');
    await locks.acquire('another', { lease: LEASE, renew: false });
    released = 0;
    await clock.advance(2 * LEASE);
    expect(released).toBeGreaterThan(0);
    await stop(locks, clock);
  });
});
