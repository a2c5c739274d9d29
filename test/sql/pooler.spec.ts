import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import {
  SqlAdvisoryLockProvider,
  SqlRowLockProvider,
  SqlVersionLockProvider,
  sqlClientOf,
} from '../../lib/providers/sql/index.js';
import { SqlBackend } from '../typeorm/sql-backend.js';

describe('behind PgBouncer in transaction mode', () => {
  let backend: SqlBackend;
  const started: LockManager[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.pooled();
  }, 60_000);
  afterEach(async () => {
    await Promise.all(started.splice(0).map((locks) => locks.stop()));
  });
  afterAll(() => backend.stop());

  function managerOf(provider: SqlRowLockProvider | SqlVersionLockProvider | SqlAdvisoryLockProvider): LockManager {
    const locks = new LockManager({ providers: { sql: provider } });
    started.push(locks);
    return locks;
  }

  async function leases(): Promise<LockManager> {
    const locks = managerOf(new SqlVersionLockProvider({ url: backend.server.url, synchronize: true }));
    await locks.start();
    return locks;
  }

  it('the version lock lets one process in at a time, and leaves no setting on a connection that others use', async () => {
    const settings = () =>
      backend.admin.query<object[]>(
        `SELECT current_setting('lock_timeout') AS wait, current_setting('idle_session_timeout') AS idle, ` +
          `current_setting('statement_timeout') AS statement, (SELECT count(*) FROM pg_prepared_statements) AS prepared`,
      );
    const [before] = await settings();
    const processes = await Promise.all([leases(), leases(), leases()]);
    let inside = 0;
    let most = 0;
    await Promise.all(
      processes.flatMap((locks) =>
        Array.from({ length: 20 }, (_, index) =>
          locks.withLock(index % 2 === 0 ? 'one' : `own-${index}`, async ({ key }) => {
            if (key !== 'one') return;
            most = Math.max(most, (inside += 1));
            await settings();
            inside -= 1;
          }),
        ),
      ),
    );
    expect(most).toBe(1);
    // Each of the few connections of the pool in turn.
    for (const seen of await Promise.all(Array.from({ length: 9 }, settings))) expect(seen).toEqual([before]);
  });

  it.each([
    ['row', SqlRowLockProvider],
    ['advisory', SqlAdvisoryLockProvider],
  ])('the %s lock does not start, and names the version lock', async (_, Provider) => {
    const start = managerOf(new Provider({ url: backend.server.url, synchronize: true })).start();
    await expect(start).rejects.toBeInstanceOf(LockConfigError);
    await expect(start).rejects.toThrow(/PgBouncer.*or use the version lock/);
  });

  it('an account whose transactions are not READ COMMITTED is refused, since it cannot be set', async () => {
    await backend.admin.query('CREATE DATABASE strict');
    await backend.admin.query(`ALTER DATABASE strict SET default_transaction_isolation = 'repeatable read'`);
    const url = new URL('/strict', backend.server.url).href;
    const start = managerOf(new SqlVersionLockProvider({ url, synchronize: true })).start();
    await expect(start).rejects.toThrow(/repeatable read.*default_transaction_isolation/);
  });

  it('a version lock lends no connection', async () => {
    const locks = await leases();
    await using lock = await locks.acquire('a');
    expect(() => sqlClientOf(lock)).toThrow(LockConfigError);
  });
});
