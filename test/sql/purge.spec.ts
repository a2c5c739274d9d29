import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { FAMILIES } from '../../lib/providers/sql/connection/databases.js';
import { isUnused } from '../../lib/providers/sql/table/lock-table.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { LockProcesses, NUMBERS, SqlBackend, TABLE } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

const NEVER = '9000000000000000';

describe.each(['mariadb', 'postgres'] as const)('a purge on %s', (type) => {
  const family = FAMILIES[type === 'mariadb' ? 'mysql' : 'postgres'];
  const { value } = family;
  const backend = SqlBackend.forTests(type);
  let wire: TcpProxy;

  beforeAll(async () => {
    wire = await startTcpProxy(backend.server.port);
  });
  afterEach(() => wire.heal());
  const processes = new LockProcesses();
  afterAll(() => wire.close());

  function start(port: number): Promise<LockManager> {
    const url = new URL(backend.server.url);
    url.port = String(port);
    return processes.start(
      new SqlVersionLockProvider({ url: url.toString(), synchronize: true, commandTimeout: '30s' }),
    );
  }

  /** Replaces all rows. Each name in `used` gets a lease that never ends. */
  async function fill(unused: number, used: readonly string[] = []): Promise<void> {
    await backend.admin.query(`DELETE FROM ${TABLE}`);
    await backend.admin.query(
      `INSERT INTO ${TABLE} (name, expires) SELECT CONCAT('old:', n), 1 FROM (${NUMBERS[type](unused)}) AS made`,
    );
    for (const name of used) {
      await backend.admin.query(`INSERT INTO ${TABLE} (name, expires) VALUES (${value(1)}, ${NEVER})`, [name]);
    }
  }

  // Without the rows in which processes write their names.
  const namesBy = async (end: string): Promise<string[]> => {
    const sql = `SELECT name FROM ${TABLE} WHERE name LIKE 'old:%' OR name LIKE 'used:%' ${end}`;
    const rows = await backend.admin.query<{ name: string | Buffer }[]>(sql);
    return rows.map(({ name }) => name.toString()).sort();
  };
  const rows = () => namesBy('');
  const unlocked = () => namesBy('FOR UPDATE SKIP LOCKED');

  it('blocks no key if its connection freezes at any moment', async () => {
    const locks = await start(backend.server.port);
    const purging = await start(wire.port);
    await fill(1_000);
    wire.slow(5, 'both');
    const over = new AbortController();
    const purge = () => purging.admin.purge({ unusedFor: '1h' });
    const purged = purge().finally(() => {
      over.abort();
    });
    purged.catch(() => undefined);
    while (!over.signal.aborted) {
      await sleep(15);
      wire.freeze();
      // The server executes what was in transit.
      await until(async () => (await unlocked()).length === (await rows()).length, 'no row is locked');
      expect(await locks.withLock('a', () => 'done', { wait: 0 })).toBe('done');
      wire.thaw();
    }
    // A batch skips rows that are locked, including by the checks of this test.
    expect((await purged) + (await purge())).toBe(1_000);
  }, 120_000);

  // For small tables, a server reads all rows instead of only the requested ones.
  it.each([
    [1, 1],
    [3, 1],
    [3, 2],
    [10, 10],
    [300, 100],
    [3_000, 100],
  ])('in a table of %i rows deletes %i, skips locked rows, and locks only the requested rows', async (size, count) => {
    await start(backend.server.port);
    await fill(size, ['used:1', 'used:2']);
    const batch = Array.from({ length: count }, (_, index) => `old:${index + 1}`);
    const statement = family.deleteUnlocked(TABLE, isUnused(family, 1_000), count + 1);
    const asked = [...batch, 'used:1'];
    const holder = backend.admin.createQueryRunner();
    const purger = backend.admin.createQueryRunner();
    try {
      await holder.startTransaction('READ COMMITTED');
      await holder.query(`SELECT name FROM ${TABLE} WHERE name IN ('old:1', 'used:2') FOR UPDATE`);
      // In a transaction, so that the test can see its locks.
      await purger.startTransaction('READ COMMITTED');
      await purger.query(statement, [...family.list(asked)]);
      // Among the requested rows, MariaDB and MySQL also lock those in use.
      const others = (await rows()).filter((name) => !asked.includes(name) && name !== 'used:2');
      expect((await unlocked()).filter((name) => !asked.includes(name))).toEqual(others);
      await purger.commitTransaction();
      // The locked row stays, and so does the row in use.
      expect((await rows()).filter((name) => asked.includes(name))).toEqual(['old:1', 'used:1']);
      // A locked row is skipped even if it is the only one requested.
      const alone = family.deleteUnlocked(TABLE, isUnused(family, 1_000), 1);
      await purger.query(alone, [...family.list(['old:1'])]);
      expect(await rows()).toContain('old:1');
      await holder.rollbackTransaction();
      await purger.query(alone, [...family.list(['old:1'])]);
      expect(await rows()).not.toContain('old:1');
    } finally {
      if (holder.isTransactionActive) await holder.rollbackTransaction();
      if (purger.isTransactionActive) await purger.rollbackTransaction();
      await holder.release();
      await purger.release();
    }
  });

  it('counts the rows it deleted, across batches and alongside locked rows', async () => {
    const locks = await start(backend.server.port);
    await fill(250, ['used:1']);
    const holder = backend.admin.createQueryRunner();
    await holder.startTransaction();
    try {
      await holder.query(`SELECT name FROM ${TABLE} WHERE name IN ('old:7', 'old:200') FOR UPDATE`);
      const purging = locks.admin.backend(VersionLockBackend);
      expect(await purging.purge({ unusedFor: '1h' })).toBe(248);
      await holder.rollbackTransaction();
      expect(await purging.purge({ unusedFor: '1h' })).toBe(2);
      expect(await rows()).toContain('used:1');
    } finally {
      if (holder.isTransactionActive) await holder.rollbackTransaction();
      await holder.release();
    }
  });

  if (type === 'mariadb') {
    it('works on a server that rejects statements without a key (sql_safe_updates)', async () => {
      await backend.admin.query('SET GLOBAL sql_safe_updates = 1');
      try {
        const locks = await start(backend.server.port);
        await fill(3);
        expect(await locks.admin.purge({ unusedFor: '1h' })).toBe(3);
      } finally {
        await backend.admin.query('SET GLOBAL sql_safe_updates = 0');
      }
    });
  }
});
