import { LockManager } from '../../lib/engine/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
it('walks the whole path', async () => {
  const m = new LockManager({ providers: { memory: new MemoryLockProvider() } });
  await m.start();
  const order: number[] = [];
  await Promise.all(
    [1, 2, 3].map((i) =>
      m.withLock('a', async (lock) => {
        order.push(i);
        await new Promise((r) => setImmediate(r));
        order.push(i);
        lock.assertHeld();
        expect(m.current()).toBe(lock);
        await m.withLock('a', () => undefined);
      }),
    ),
  );
  expect(order).toEqual([1, 1, 2, 2, 3, 3]);
  const lock = await m.acquire(['b', 'a']);
  expect(lock.keys).toEqual(['a', 'b']);
  expect(await m.tryAcquire('a')).toBeNull();
  await expect(m.acquire('a', { wait: 20 })).rejects.toThrow(/this process holds it/);
  expect(await lock.release()).toBe('released');
  await m.stop();
});
