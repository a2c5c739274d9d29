import { LockBusyError } from '../../lib/api/errors.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { startManager, watch } from '../core/manager-rig.js';

describe('the error of a busy combined lock', () => {
  it.each([
    ['after a wait', 2_000, 'for the whole wait of 2000 ms: instance "billing" has held it for 2 s.'],
    ['without one', 0, 'was busy: instance "billing" has held it for 0 ms.'],
  ])('names the holder in the member that keeps it out, %s', async (_, wait, words) => {
    const clock = new FakeClock();
    const stores = { a: new MemoryStore(), b: new MemoryStore() };
    const start = (instance: string) =>
      startManager({
        ...{ clock, instance, default: 'all' },
        providers: {
          all: new CombinedLockProvider({ providers: ['a', 'b'] }),
          a: new MemoryLockProvider({ store: stores.a }),
          b: new MemoryLockProvider({ store: stores.b }),
        },
      });
    const [shop, billing] = [await start('shop'), await start('billing')];
    const since = new Date(clock.wallTime());
    const held = await billing.locks.acquire('order:42', { provider: 'b' });
    const refused = watch(shop.locks.acquire('order:42', { wait }));
    await clock.advance(wait + 1);
    expect(refused.error).toBeInstanceOf(LockBusyError);
    const { message, heldBy } = refused.error as LockBusyError;
    expect(heldBy).toEqual({ instance: 'billing', method: null, since, holders: 1 });
    expect(message).toContain(words);
    await held.release();
  });
});
