import { LockBusyError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';

describe('the holder of a busy lock of ZooKeeper', () => {
  let server: ZooKeeperServer;
  const managers: LockManager[] = [];
  beforeAll(async () => {
    server = await startZooKeeper();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });
  afterAll(() => server.stop());

  async function start(instance: string): Promise<LockManager> {
    const provider = new ZooKeeperLockProvider({ connectString: server.connectString, sessionTimeout: 30_000 });
    const locks = new LockManager({ providers: { zk: provider }, instance, logger: silentLogger, shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    return locks;
  }
  async function busy(refused: Promise<unknown>): Promise<LockBusyError> {
    const error: unknown = await refused.catch((reason: unknown) => reason);
    if (!(error instanceof LockBusyError)) throw new Error(`Expected a busy lock, and got ${String(error)}`);
    return error;
  }
  const untilNamed = (asks: () => Promise<unknown>, instance: string) =>
    until(async () => (await busy(asks())).heldBy?.instance === instance, 'the name is read');

  it('is its instance: by 12 digits, then by its name', async () => {
    const [shop, billing] = [await start('shop'), await start('billing')];
    const { holder } = await shop.acquire('order:42');
    const first = await busy(billing.acquire('order:42', { wait: 0 }));
    expect(first.heldBy).toMatchObject({ method: null, since: null, holders: 1 });
    expect([holder.slice(0, 12), 'shop']).toContain(first.heldBy?.instance);
    await untilNamed(() => billing.acquire('order:42', { wait: 0 }), 'shop');
  });

  it('that the caller waits for is still there, whenever that was seen', async () => {
    const [shop, billing] = [await start('shop'), await start('billing')];
    await shop.acquire('order:42');
    await untilNamed(() => billing.acquire('order:42', { wait: 0 }), 'shop');
    const { heldBy, message } = await busy(billing.acquire('order:42', { wait: 300 }));
    expect(heldBy).toEqual({ instance: 'shop', method: null, since: null, holders: 1 });
    expect(message).toMatch(/for the whole wait of \d+ ms: instance "shop" has it\./);
  });

  it('behind another waiter is the one that was seen, with its age', async () => {
    const [shop, billing, third] = [await start('shop'), await start('billing'), await start('third')];
    const held = await shop.acquire('order:42');
    await untilNamed(() => third.acquire('order:42', { wait: 0 }), 'shop');
    const next = billing.acquire('order:42', { wait: 20_000 });
    await until(async () => (await shop.admin.inspect('order:42'))?.waiters === 1, 'the second is queued');
    const refused = busy(third.acquire('order:42', { wait: 300 }));
    await until(async () => (await shop.admin.inspect('order:42'))?.waiters === 2, 'the third is queued');
    await held.release();
    await next;
    expect((await refused).message).toMatch(/for the whole wait of \d+ ms: instance "shop" held it \d+ m?s ago\./);
  });

  it.each([
    ['shared', { mode: 'shared' } as const, {}],
    ['limited', { limit: 2 }, { limit: 2 }],
  ])('is a number of holders where it is %s', async (_, terms, refused) => {
    const [shop, billing, third] = [await start('shop'), await start('billing'), await start('third')];
    await shop.acquire('a', terms);
    await billing.acquire('a', terms);
    const { heldBy, message } = await busy(third.acquire('a', { ...refused, wait: 0 }));
    expect(heldBy).toEqual({ instance: null, method: null, since: null, holders: 2 });
    expect(message).toContain(': 2 holders have it.');
  });
});
