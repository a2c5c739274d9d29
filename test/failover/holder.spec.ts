import { LockBusyError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { DistantProvider } from '../contract/memory-server.js';
import { watch } from '../core/manager-rig.js';
import { DistantCasProvider, TestFleet } from './fleet-rig.js';

it('the error of a busy lock of a failover names the holder in the member that grants', async () => {
  const fleet = new TestFleet();
  const { clock, stores, shared } = fleet;
  const start = async (instance: string): Promise<LockManager> => {
    const providers = {
      a: new DistantProvider(stores.a),
      b: new DistantProvider(stores.b),
      record: new DistantCasProvider(stores.record, shared),
      main: new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'record' }),
    };
    const locks = new LockManager({ ...{ providers, default: 'main', clock, instance }, shutdownGrace: 0 });
    await fleet.drive(locks.start());
    return locks;
  };
  const [shop, billing] = [await start('shop'), await start('billing')];
  const held = await fleet.drive(billing.acquire('order:42'));
  const since = new Date(clock.wallTime());
  await clock.advance(39_000);
  const refused = watch(shop.acquire('order:42', { wait: 2_000 }));
  await clock.advance(2_000);
  expect(refused.error).toBeInstanceOf(LockBusyError);
  const { message, heldBy } = refused.error as LockBusyError;
  expect(heldBy).toMatchObject({ instance: 'billing', method: null, holders: 1 });
  expect(Math.abs(Number(heldBy?.since) - Number(since))).toBeLessThanOrEqual(10);
  expect(message).toContain('was busy for the whole wait of 2000 ms: instance "billing" has held it for 41 s.');
  await fleet.drive(held.release());
  await fleet.drive(Promise.all([shop.stop(), billing.stop()]));
});
