import type { LockManager } from '../../lib/core/lock-manager.js';
import type { AcquireRequest, LockProvider } from '../../lib/api/lock-provider.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { CombinedProvider } from '../../lib/providers/combined/combined-provider.js';
import type { CombinedProviderOptions } from '../../lib/providers/combined/combined-options.js';
import { FailoverProvider } from '../../lib/providers/failover/failover-provider.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import type { FakeClock } from '../../lib/testing/fake-clock.js';
import { DistantMemoryProvider } from '../contract/memory-backend.js';
import { startEngine, watch } from '../core/engine-rig.js';
import { ScriptedProvider } from '../core/scripted-provider.js';

const down = () => {
  throw new LockUnavailableError('down');
};

async function combine(
  quorum: CombinedProviderOptions['quorum'],
  engines: Readonly<Record<string, LockProvider>>,
  beneath: Readonly<Record<string, LockProvider>> = {},
) {
  const all = new CombinedProvider({ engines: Object.keys(engines), quorum });
  const providers = { all, ...engines, ...beneath };
  return { all, ...(await startEngine({ providers, default: 'all', shutdownGrace: 0 })) };
}

async function stop(locks: LockManager, clock: FakeClock): Promise<void> {
  const stopped = locks.stop();
  await clock.advance(10_000);
  await stopped;
}

describe('CombinedProvider, asked again after an engine did not answer', () => {
  it('goes on waiting in an engine that is a failover', async () => {
    const table = new LockTable();
    const a = new DistantMemoryProvider(table);
    const beneath = { a, aToo: new MemoryLockProvider({ table }), b: new MemoryLockProvider() };
    const engines = {
      f: new FailoverProvider({ engines: ['a', 'b'], mode: 'available' }),
      c: new MemoryLockProvider(),
    };
    const { locks, clock } = await combine('all', engines, beneath);
    const inTheWay = await locks.acquire('k', { provider: 'aToo', lease: '10m' });
    const lock = watch(locks.acquire('k', { wait: 60_000 }));
    await clock.advance(100);
    a.cutOff();
    await clock.advance(1);
    a.restore();
    await clock.advance(5_000);
    expect(lock.error).toBeUndefined();
    await inTheWay.release();
    await clock.advance(1_000);
    expect(lock.value?.isHeld()).toBe(true);
    await stop(locks, clock);
  });

  it('keeps what it gets then, though something of it was given back late before', async () => {
    const { a, b } = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { locks, clock } = await combine('all', { a, b });
    // The first engine grants, the second is busy, and the first does not answer when that is given back.
    b.onAcquire = () => ((b.onAcquire = (_, grant) => grant()), 'busy');
    a.onRelease = () => ((a.onRelease = () => 'released'), 'unknown');
    const lock = watch(locks.acquire('x', { lease: '9s', wait: 10_000 }));
    await clock.advance(1_000);
    expect(lock.value?.isHeld()).toBe(true);
    await (await locks.acquire('y')).release();
    await clock.advance(20_000);
    expect(lock.value?.isHeld()).toBe(true);
    expect(await lock.value?.release()).toBe('released');
    await stop(locks, clock);
  });

  it('waits as long as it is told then', async () => {
    const engines = { a: ScriptedProvider.obliging(), b: ScriptedProvider.obliging() };
    const { all, locks, clock } = await combine('all', engines);
    const signal = new AbortController().signal;
    const request: AcquireRequest = {
      ...{ key: 'k', holder: 'h', mode: 'exclusive', lease: 9_000, renew: true, minHold: 0, options: {} },
      ...{ wait: 5_000, signal },
    };
    engines.a.onAcquire = down;
    await expect(all.acquire(request)).rejects.toThrow(LockUnavailableError);
    const waits: number[] = [];
    engines.a.onAcquire = ({ wait }) => (waits.push(wait), 'busy');
    expect(await all.acquire({ ...request, wait: 0 })).toBe('busy');
    expect(waits).toEqual([0]);
    await stop(locks, clock);
  });
});
