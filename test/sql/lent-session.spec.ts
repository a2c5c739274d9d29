import type { Connection } from 'mysql2';
import type { Client } from 'pg';
import type { Lock } from '../../lib/api/lock.js';
import { sqlClientOf, SqlRowLockProvider } from '../../lib/providers/sql/index.js';
import { LockProcesses, SqlBackend, type SqlType } from '../typeorm/sql-backend.js';

const DATABASES = {
  mariadb: {
    connection: 'SELECT CONNECTION_ID() AS value',
    initSql: `SET @init = 'set'`,
    init: 'SELECT @init AS value',
    undoInit: `SET @init = 'gone'`,
    // Each statement with a query that reveals its effect. Unqualified, the name means the temporary table, which is
    // empty.
    left: [
      [
        'CREATE TEMPORARY TABLE distributed_lock LIKE other.distributed_lock',
        'SELECT COUNT(*) > 0 AS value FROM distributed_lock',
      ],
      ['SET SESSION TRANSACTION READ ONLY', 'SELECT @@tx_read_only AS value'],
      ['USE other', 'SELECT DATABASE() AS value'],
      ['SET SESSION max_statement_time = 5', 'SELECT @@max_statement_time AS value'],
      [
        'SET SESSION innodb_lock_wait_timeout = 1, SESSION wait_timeout = 5',
        'SELECT @@innodb_lock_wait_timeout AS value',
      ],
      [`SELECT GET_LOCK('of the task', 0)`, `SELECT IS_USED_LOCK('of the task') AS value`],
    ],
  },
  postgres: {
    connection: 'SELECT pg_backend_pid() AS value',
    initSql: `SET application_name = 'set'`,
    init: `SELECT current_setting('application_name') AS value`,
    undoInit: `SET application_name = 'gone'`,
    left: [
      [
        'CREATE TEMP TABLE distributed_lock (LIKE public.distributed_lock INCLUDING ALL)',
        `SELECT to_regclass('pg_temp.distributed_lock')::text AS value`,
      ],
      [
        'SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY',
        `SELECT current_setting('default_transaction_read_only') AS value`,
      ],
      ['SET ROLE low', 'SELECT current_user AS value'],
      ['SET SESSION AUTHORIZATION low', 'SELECT session_user AS value'],
      ['SET lock_timeout = 1; SET statement_timeout = 5000', `SELECT current_setting('statement_timeout') AS value`],
      [
        'SELECT pg_advisory_lock(1)',
        `SELECT count(*) AS value FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`,
      ],
    ],
  },
};

describe.each<SqlType>(['mariadb', 'postgres'])('a session of %s lent to the application', (type) => {
  const { connection, initSql, init, undoInit, left } = DATABASES[type];
  const processes = new LockProcesses();
  const backend = SqlBackend.forTests(type);

  beforeAll(async () => {
    const locks = await processes.start(new SqlRowLockProvider({ url: backend.server.url, synchronize: true }));
    await (await locks.acquire('x')).release();
    await processes.stop();
    const others =
      type === 'postgres'
        ? ['CREATE ROLE low']
        : ['CREATE DATABASE other', 'CREATE TABLE other.distributed_lock LIKE distributed_lock'];
    for (const sql of others) await backend.admin.query(sql);
  }, 60_000);

  const start = () =>
    processes.start(
      new SqlRowLockProvider({ url: backend.server.url, maxConnections: 1, connectionInitSql: [initSql] }),
    );
  async function ask(lock: Lock, sql: string): Promise<unknown> {
    const rows =
      type === 'postgres'
        ? (await sqlClientOf<Client>(lock).query<{ value: unknown }>(sql)).rows
        : ((await sqlClientOf<Connection>(lock).promise().query(sql))[0] as { value: unknown }[]);
    // For several statements, pg returns an array, which has no rows.
    return (rows as typeof rows | undefined)?.[0]?.value;
  }

  it.each(left)('keeps nothing of "%s", and is reused', async (sql, look) => {
    const locks = await start();
    const seen = async (lock: Lock) => [await ask(lock, connection), await ask(lock, look)];
    const before = await locks.withLock('x', async (lock) => {
      const values = await seen(lock);
      await ask(lock, sql);
      expect(await seen(lock)).not.toEqual(values);
      return values;
    });
    for (let round = 0; round < 3; round += 1) expect(await locks.withLock('x', seen)).toEqual(before);
    const others = await start();
    // If the first one locked another table, both would hold the lock.
    await locks.withLock('x', async () => {
      await expect(others.acquire('x', { wait: 0 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
    });
  });

  it('gets the settings of connectionInitSql again', async () => {
    const locks = await start();
    await locks.withLock('x', (lock) => ask(lock, undoInit));
    expect(await locks.withLock('x', (lock) => ask(lock, init))).toBe('set');
  });

  if (type === 'postgres')
    it("is closed if it doesn't see the row it has created twice", async () => {
      const run = async (sql: string) => await backend.admin.query<{ pid: number }[]>(sql);
      const locks = await start();
      const pids = async () => {
        const rows = await run(`SELECT pid FROM pg_stat_activity WHERE application_name = 'set'`);
        return rows.map(({ pid }) => pid);
      };
      const [before] = await pids();
      await run(`CREATE FUNCTION hide() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN DELETE FROM distributed_lock WHERE name = NEW.name; RETURN NULL; END'`);
      await run(`CREATE TRIGGER hide AFTER INSERT ON distributed_lock FOR EACH ROW
        WHEN (NEW.name LIKE '%hidden%') EXECUTE FUNCTION hide()`);
      await expect(locks.acquire('hidden')).rejects.toThrow(/created twice/);
      await (await locks.acquire('seen')).release();
      expect(await pids()).not.toContain(before);
    });
});
