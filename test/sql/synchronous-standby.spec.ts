import pg from 'pg';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { entryNameOf } from '../../lib/providers/sql/table/lock-name.js';
import { type PostgresStandby, type SqlServer, startPostgres, startPostgresStandby } from '../servers/sql-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { TIMEOUT, until } from '../until.js';
import { LockProcesses } from '../typeorm/sql-backend.js';

const KEY = 'order:7';
// A statement that waits for the standby is abandoned after this time, so that the key is requested again.
const IMPATIENT = { commandTimeout: '1s' };

/**
 * While the standby is away, each COMMIT on the primary hangs, and its writes become visible when the connection ends.
 */
describe('a synchronous Postgres standby', () => {
  const processes = new LockProcesses();
  let primary: SqlServer;
  let standby: PostgresStandby;
  /** Between the standby and the primary. */
  let link: TcpProxy;
  /** The writer's address. */
  let address: TcpProxy;

  beforeEach(async () => {
    primary = await startPostgres();
    [link, address] = await Promise.all([startTcpProxy(primary.port), startTcpProxy(primary.port)]);
    standby = await startPostgresStandby(primary, { sourcePort: link.port });
  }, 120_000);
  afterEach(async () => {
    await Promise.all([link.close(), address.close(), standby.stop(), primary.stop()]);
  });

  const start = (Provider: typeof SqlVersionLockProvider, options: object = {}): Promise<LockManager> =>
    processes.start(
      new Provider({ url: `postgres://postgres@127.0.0.1:${address.port}/postgres`, synchronize: true, ...options }),
    );

  async function failOver(): Promise<void> {
    await primary.stop();
    await standby.promote();
    address.leadTo(standby.port);
    address.cut();
  }

  async function holdersAt({ url }: SqlServer): Promise<unknown[]> {
    const admin = new pg.Client(url);
    await admin.connect();
    // A released hold ends at 0.
    const { rows } = await admin.query<{ holder: unknown; holders: unknown }>(
      `SELECT holder, holders FROM distributed_lock WHERE name = $1 AND (holder IS NOT NULL OR holders ~ '=[1-9]')`,
      [entryNameOf('test', 'lease', KEY)],
    );
    await admin.end();
    return rows;
  }

  describe.each([
    ['a lock', {}],
    ['a limited lock', { limit: 1 }],
  ])('%s in the table', (_, terms) => {
    it("is not granted by a row that the standby doesn't have", async () => {
      const locks = await start(SqlVersionLockProvider, IMPATIENT);
      await (await locks.acquire(KEY, terms)).release();
      link.refuse();
      const refused = expect(locks.acquire(KEY, { wait: '8s', ...terms })).rejects.toBeInstanceOf(LockUnavailableError);
      await until(async () => (await holdersAt(primary)).length === 1, 'the row shows the holder');
      await refused;
      await failOver();
      expect(await holdersAt(standby)).toEqual([]);
    }, 120_000);

    it('is granted when the standby is back, and survives the primary', async () => {
      const locks = await start(SqlVersionLockProvider, IMPATIENT);
      await (await locks.acquire(KEY, terms)).release();
      link.refuse();
      const acquired = locks.acquire(KEY, { wait: TIMEOUT, lease: '60s', ...terms });
      await until(async () => (await holdersAt(primary)).length === 1, 'the row shows the holder');
      link.admit();
      const lock = await acquired;
      await failOver();
      expect(await holdersAt(standby)).toHaveLength(1);
      expect(lock.isHeld()).toBe(true);
    }, 120_000);
  });

  it.each([
    ['version', SqlVersionLockProvider, {}],
    ['row', SqlRowLockProvider, { fencing: true }],
    ['advisory', SqlAdvisoryLockProvider, { fencing: true }],
  ])(
    'causes an outage for a %s lock while it is away, and never reports busy',
    async (_, Provider, options) => {
      const locks = await start(Provider as typeof SqlVersionLockProvider, { ...IMPATIENT, ...options });
      await (await locks.acquire('first')).release();
      link.refuse();
      for (const wait of [0, '1.6s', '2.6s', '4.2s'] as const) {
        await expect(locks.acquire(`k${wait}`, { wait })).rejects.toBeInstanceOf(LockUnavailableError);
      }
    },
    120_000,
  );
});
