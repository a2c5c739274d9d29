// Compiled by `npm run typecheck`, never run.
import type { LockService } from '../../lib/index.js';

declare const locks: LockService;

// The service, typed.
export async function service(): Promise<number> {
  await using lock = await locks.acquire('a', { wait: '500ms' });
  const maybe = await locks.tryAcquire(['a', 'b']);
  // @ts-expect-error: null is busy
  maybe.assertHeld();
  // @ts-expect-error: no number is a key
  void locks.acquire(1);
  locks.events.on('lost', ({ reason, key }) => `${reason} ${key}`);
  // @ts-expect-error: text without a unit is no duration
  void locks.acquire('a', { wait: '5' });
  // @ts-expect-error: no such event
  locks.events.on('gone', () => undefined);
  return await locks.withLock('b', ({ fencingToken }) => (lock.isHeld() && fencingToken !== null ? 1 : 2));
}
