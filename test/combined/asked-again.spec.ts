import type { LockManager } from '../../lib/core/lock-manager.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { CombinedBackend } from '../../lib/providers/combined/combined-backend.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager, watch } from '../core/manager-rig.js';
import { ScriptedProvider } from '../core/scripted-provider.js';
import { TestFleet } from '../failover/fleet-rig.js';
import { requestFor } from '../direct-backend.js';

const down = () => {
  throw new LockUnavailableError('down');
};

function combine(members: Readonly<Record<string, LockProvider>>) {
  const all = new CombinedLockProvider({ providers: Object.keys(members) });
  return startManager({ providers: { all, ...members }, default: 'all', shutdownGrace: 0 });
}

async function stop(locks: LockManager, clock: FakeClock): Promise<void> {
  const stopped = locks.stop();
  await clock.advance(10_000);
  await stopped;
}

describe('CombinedLockProvider, asked again after a member did not answer', () => {
  it('goes on waiting in a member that is a failover', async () => {
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

  it('keeps what it gets then, though something of it was released late before', async () => {
    const { a, b } = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { locks, clock } = await combine({ a, b });
    let inA = '';
    a.onAcquire = ({ id }, grant) => ((inA = id), grant());
    // The first member grants and loses it while the second is waited for, and does not answer when it is released.
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
    await stop(locks, clock);
  });

  it('waits as long as it is asked to then', async () => {
    const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { locks, clock } = await combine(members);
    const all = locks.admin.backend(CombinedBackend, 'all');
    let wait = 5_000;
    const request = Object.defineProperty(requestFor('k', 'h'), 'wait', { get: () => wait });
    members.a.onAcquire = down;
    await expect(all.acquire(request)).rejects.toThrow(LockUnavailableError);
    const waits: number[] = [];
    members.a.onAcquire = ({ wait }) => (waits.push(wait), 'busy');
    wait = 0;
    expect(await all.acquire(request)).toBe('busy');
    expect(waits).toEqual([0]);
    await stop(locks, clock);
  });
});

describe('CombinedLockProvider, whose caller leaves', () => {
  it('does not begin again after the core has released the attempt', async () => {
    const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { locks, clock } = await combine(members);
    const { a, b } = members;
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
    // What it had in the first member is lost, and the release in the second takes longer than the caller waits.
    a.revoke(inA);
    heldInA.delete(inA);
    b.onAcquire = down;
    await clock.advance(25_000);
    expect(lock.state).toBe('rejected');
    expect(heldInA.size).toBe(0);
    await stop(locks, clock);
  });

  it('renews what it has once in each third of its lease while it waits, however many members follow', async () => {
    const members = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging(), c: ScriptedProvider.obliging() };
    const { locks, clock } = await combine(members);
    members.c.onAcquire = undefined;
    watch(locks.acquire('x', { lease: '30s', wait: 100_000 }));
    await clock.advance(10);
    let renewals = 0;
    members.a.onRenew = (renewal) => ((renewals += 1), Promise.resolve(members.a.acknowledge(renewal)));
    await clock.advance(60_000);
    expect(renewals).toBe(6);
    await stop(locks, clock);
  });
});
