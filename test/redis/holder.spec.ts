import { requestFor } from '../direct-backend.js';
import type { Holding } from '../../lib/api/lock-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockBusyError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { granted, leave, redisForTests, request, startBackend, until, untilWaiting } from './seam.js';

const redis = redisForTests();
const managers: LockManager[] = [];
afterEach(async () => {
  for (const manager of managers.splice(0)) await manager.stop();
});

async function start(instance: string): Promise<LockManager> {
  const provider = new RedisLockProvider({ url: redis.server.url });
  const manager = new LockManager({ providers: { main: provider }, instance, logger: silentLogger, shutdownGrace: 0 });
  managers.push(manager);
  await manager.start();
  return manager;
}

async function busy(refused: Promise<unknown>): Promise<LockBusyError> {
  const error: unknown = await refused.catch((reason: unknown) => reason);
  if (!(error instanceof LockBusyError)) throw new Error(`Expected a busy lock, and got ${String(error)}`);
  return error;
}

it('a caller that has waited learns the instance by its name, and since when it holds the lock', async () => {
  const [shop, billing] = [await start('shop'), await start('billing')];
  const before = Date.now();
  await shop.acquire('order:42');
  const after = Date.now();
  const error = await busy(billing.acquire('order:42', { wait: 300 }));
  expect(error.heldBy).toMatchObject({ instance: 'shop', method: null, holders: 1 });
  const since = error.heldBy?.since?.getTime() ?? 0;
  expect(since).toBeGreaterThan(before - 100);
  expect(since).toBeLessThan(after + 100);
  expect(error.message).toMatch(/for the whole wait of \d+ ms: instance "shop" (has held it for|held it) \d+ ms/);
});

it('a caller that does not wait learns the 12 digits, and the next one the name', async () => {
  const [shop, billing] = [await start('shop'), await start('billing')];
  const { holder } = await shop.acquire('a');
  const first = await busy(billing.acquire('a', { wait: 0 }));
  expect(first.heldBy).toMatchObject({ instance: holder.slice(0, 12), holders: 1 });
  await until(
    async () => (await busy(billing.acquire('a', { wait: 0 }))).heldBy?.instance === 'shop',
    'the name is read',
  );
});

it('many holders are counted', async () => {
  const [shop, billing, third] = [await start('shop'), await start('billing'), await start('third')];
  await shop.acquire('readers', { mode: 'shared' });
  await billing.acquire('readers', { mode: 'shared' });
  const pool = { limit: 2 };
  await shop.acquire('pool', pool);
  await billing.acquire('pool', pool);
  const refused = [
    await busy(third.acquire('readers', { wait: 0 })),
    await busy(third.acquire('pool', { ...pool, wait: 0 })),
  ];
  for (const { heldBy, message } of refused) {
    expect(heldBy).toEqual({ instance: null, method: null, since: null, holders: 2 });
    expect(message).toContain(': 2 holders have it. Raise');
  }
});

it('a later ask sees the holder that came meanwhile', async () => {
  const [ann, bob, cid] = await Promise.all([1, 2, 3].map(() => startBackend({ url: redis.server.url })));
  if (!ann || !bob || !cid) throw new Error('Three were started.');
  const first = granted(await ann.backend.acquire(request('a')));
  const ofBob = requestFor('a', 'b0b0b0b0b0b0'.padEnd(32, '1'));
  const second = bob.backend.acquire(ofBob);
  await untilWaiting(bob);
  // Later by more than a delay on the way: the server queues by age.
  const ofCid = requestFor('a', 'c1dc1dc1dc1d'.padEnd(32, '1'));
  const third = cid.backend.acquire(ofCid);
  await untilWaiting(cid);
  const seen = (): Holding | null => cid.backend.heldBy(ofCid);
  expect(seen()?.instance).toBe(first.holder.slice(0, 12));
  await ann.backend.release(first);
  await second;
  // A slow answer makes it look older: it is counted from when the ask was sent.
  const hasCome = ({ instance, since }: Holding): boolean =>
    instance === ofBob.id.slice(0, 12) && (since ?? 0) > ofCid.since;
  await until(() => hasCome(seen() as Holding), 'it has asked again');
  await leave(cid.backend, ofCid);
  expect(await third).toBe('busy');
});

it('what nobody holds has no holder: a lock that is only retained', async () => {
  const { backend } = await startBackend({ url: redis.server.url });
  const held = granted(await backend.acquire(request('kept', { minHold: 30_000 })));
  await backend.release(held, { keepFor: 30_000, failed: false });
  const asked = request('kept', { wait: 0 });
  expect(await backend.acquire(asked)).toBe('busy');
  expect(backend.heldBy(asked)).toBeNull();
});
