import { jest } from '@jest/globals';
import * as errors from '../../lib/api/errors.js';
import { LockError, LockBusyError } from '../../lib/api/errors.js';
import { startManager } from '../core/manager-rig.js';

type ErrorClass = new (message: string, details: object) => LockError;

/** The errors of a second copy of the package, loaded for each call. */
async function copyOfErrors(): Promise<typeof errors> {
  let copy = errors;
  await jest.isolateModulesAsync(async () => {
    copy = await import('../../lib/api/errors.js');
  });
  return copy;
}

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
      .map(([name, Type]) => [name, new (Type as ErrorClass)('x', {}).code]);
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

  it('are told apart by instanceof across two copies of the package, and nothing else is one', async () => {
    const otherCopy = await copyOfErrors();
    const kinds = Object.entries(errors).filter(([name]) => name !== 'LockError') as [
      keyof typeof errors,
      ErrorClass,
    ][];
    expect(otherCopy.LockError).not.toBe(LockError);
    for (const [name] of kinds) {
      const foreign = new (otherCopy[name] as ErrorClass)('of the other copy', {});
      expect([LockError.is(foreign), foreign instanceof LockError, foreign instanceof Error]).toEqual([
        true,
        true,
        true,
      ]);
      expect(kinds.filter(([, Kind]) => foreign instanceof Kind).map(([kind]) => kind)).toEqual([name]);
    }
    for (const other of [new Error('no'), null, undefined, 'LockError', {}, { code: 'LOCK_BUSY' }]) {
      expect([LockError.is(other), other instanceof LockError, other instanceof LockBusyError]).toEqual(
        Array(3).fill(false),
      );
    }
  });

  it('of a class that an application derives are no other errors of the same code', async () => {
    class StockBusyError extends LockBusyError {}
    const { LockBusyError: Foreign } = await copyOfErrors();
    expect(new StockBusyError('busy') instanceof LockBusyError).toBe(true);
    for (const Kind of [LockBusyError, Foreign]) expect(new Kind('busy') instanceof StockBusyError).toBe(false);
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
      /^Lock "order:42" of OrderService.pay \(provider "main"\) was busy: instance "[^"]+" has held it for 0 ms\. .*within: lock.*lock\.run\(\)/,
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
