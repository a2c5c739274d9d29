import * as errors from '../../lib/api/errors.js';
import { LockError, LockLostError, LockBusyError } from '../../lib/api/errors.js';
import { startManager } from '../core/manager-rig.js';

describe('lock errors', () => {
  it('have a code, a name, a key, a provider and a cause', () => {
    const cause = new Error('beneath');
    const error = new LockBusyError('busy', { key: 'a', provider: 'main', cause });
    expect(error).toMatchObject({ name: 'LockBusyError', code: 'LOCK_BUSY', key: 'a', provider: 'main', cause });
    const bare = new LockBusyError('busy');
    expect([bare.key, bare.provider, 'cause' in bare]).toEqual([null, null, false]);
  });

  it('have codes that never change', () => {
    const codes = Object.entries(errors)
      .filter(([name]) => name !== 'LockError' && name.endsWith('Error'))
      .map(([name, Type]) => [name, new (Type as new (message: string, details: object) => LockError)('x', {}).code]);
    expect(Object.fromEntries(codes)).toEqual({
      LockBusyError: 'LOCK_BUSY',
      LockLostError: 'LOCK_LOST',
      LockUnavailableError: 'LOCK_UNAVAILABLE',
      LockKeyError: 'LOCK_KEY',
      LockConfigError: 'LOCK_CONFIG',
      LockDeadlockError: 'LOCK_DEADLOCK',
      LockCapacityError: 'LOCK_CAPACITY',
      VersionConflictError: 'LOCK_VERSION_CONFLICT',
    });
  });

  it('are recognised across two copies of the package, and nothing else is', () => {
    const foreign = Object.defineProperty(
      new Error('of the other copy'),
      Symbol.for('nestjs-distributed-lock:LockError'),
      {
        value: true,
      },
    );
    expect(LockError.is(foreign)).toBe(true);
    expect(LockError.is(new LockLostError('lost', { reason: 'expired' }))).toBe(true);
    for (const other of [new Error('no'), null, undefined, 'LockError', {}]) expect(LockError.is(other)).toBe(false);
  });

  it('show no more in a log than they say', () => {
    const keys = Object.keys(new LockBusyError('busy', { key: 'a', waited: 7 })).sort();
    expect(keys).toEqual(['code', 'key', 'name', 'provider', 'waited']);
  });

  it('name the key, the provider, the method and the remedy', async () => {
    const { locks } = await startManager();
    const plan = locks.plan({ wait: 0 }, { method: 'OrderService.pay', template: 'order:#{id}' });
    await locks.acquire('order:42');
    await expect(async () => locks.acquirePlanned(plan, 'order:42')).rejects.toThrow(
      /^Lock "order:42" of OrderService.pay \(provider "main"\) was busy when asked; .*withLock\(\)/,
    );
  });

  it('cut a long key', async () => {
    const { locks } = await startManager();
    const key = 'k'.repeat(1_000);
    await locks.acquire(key);
    const error: unknown = await locks.acquire(key, { wait: 0 }).catch((reason: unknown) => reason);
    expect(String(error).length).toBeLessThan(500);
    expect(error).toMatchObject({ key, waited: 0 });
  });
});
