import { jest } from '@jest/globals';
import { LockManager, MemoryLockProvider } from '../../lib/index.js';

describe('fake timers of Jest', () => {
  afterEach(() => {
    jest.useRealTimers();
  });

  it.each(['boot', 'held'])('installed at "%s", leave the clock of the core alone', async (moment) => {
    if (moment === 'boot') jest.useFakeTimers();
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await locks.start();
    const lock = await locks.acquire('order');
    if (moment === 'held') jest.useFakeTimers();
    expect(lock.isHeld()).toBe(true);
    await expect(locks.acquire('order', { wait: 20 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
    jest.advanceTimersByTime(3_600_000);
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await expect(locks.withLock('order', () => 'done')).resolves.toBe('done');
    await locks.stop();
  });

  it('do not keep back several timers that are due together', async () => {
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await locks.start();
    const lock = await locks.acquire('order');
    jest.useFakeTimers();
    const waits = Array.from({ length: 3 }, () => locks.acquire('order', { wait: 20 }));
    const outcomes = await Promise.allSettled(waits);
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    await lock.release();
    await locks.stop();
  });

  it('installed before this package is loaded, leave it alone as well', async () => {
    jest.useFakeTimers();
    await jest.isolateModulesAsync(async () => {
      const fresh = await import('../../lib/index.js');
      expect(fresh.LockManager).not.toBe(LockManager);
      const locks = new fresh.LockManager({ providers: { memory: new fresh.MemoryLockProvider() } });
      await locks.start();
      const lock = await locks.acquire('order');
      await expect(locks.acquire('order', { wait: 20 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
      await lock.release();
      await locks.stop();
    });
  });
});
