import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { LockBusyError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { until } from '../until.js';
import { SqlBackend, type SqlType } from './sql-backend.js';

const TYPES: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(TYPES)('the holder of a busy lease on %s', (type) => {
  let backend: SqlBackend;
  const managers: LockManager[] = [];
  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });
  afterAll(() => backend.stop());

  async function application(instance: string): Promise<LockManager> {
    const provider = new TypeOrmVersionLockProvider({
      ...{ dataSource: backend.source(), synchronize: true, commandTimeout: '10s' },
    });
    const locks = new LockManager({ providers: { sql: provider }, instance, logger: silentLogger, shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    // A test must not depend on how fast the name is recorded.
    await locks.admin.backend(VersionLockBackend).register();
    return locks;
  }
  async function busy(refused: Promise<unknown>): Promise<LockBusyError> {
    const error: unknown = await refused.catch((reason: unknown) => reason);
    if (!(error instanceof LockBusyError)) throw new Error(`Expected a busy lock, and got ${String(error)}`);
    return error;
  }

  it('is named with its instance, and since when it holds', async () => {
    const [shop, billing] = [await application('shop'), await application('billing')];
    const before = Date.now();
    const { holder } = await shop.acquire('order:42');
    const after = Date.now();
    const first = await busy(billing.acquire('order:42', { wait: 0 }));
    expect([holder.slice(0, 12), 'shop']).toContain(first.heldBy?.instance);
    const named = async () => (await busy(billing.acquire('order:42', { wait: 0 }))).heldBy?.instance === 'shop';
    await until(named, 'the name is read');
    const { heldBy, message } = await busy(billing.acquire('order:42', { wait: 300 }));
    expect(heldBy).toMatchObject({ instance: 'shop', method: null, holders: 1 });
    const since = heldBy?.since?.getTime() ?? 0;
    // By the clock of the server, on the same machine.
    expect(since).toBeGreaterThan(before - 100);
    expect(since).toBeLessThan(after + 100);
    expect(message).toMatch(
      /for the whole wait of \d+ ms: instance "shop" (has held it for \d+ m?s|held it \d+ m?s ago)\./,
    );
  });

  it('is a number of holders where the lease is limited', async () => {
    const [shop, billing] = [await application('shop'), await application('billing')];
    const pool = { limit: 2 };
    await shop.acquire('pool', pool);
    await billing.acquire('pool', pool);
    const { heldBy, message } = await busy((await application('third')).acquire('pool', { ...pool, wait: 0 }));
    expect(heldBy).toEqual({ instance: null, method: null, since: null, holders: 2 });
    expect(message).toContain(': 2 holders have it.');
  });
});
