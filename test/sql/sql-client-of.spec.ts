import type { Readable } from 'node:stream';
import knex, { type Knex } from 'knex';
import { Kysely, MysqlDialect, PostgresDialect } from 'kysely';
import { type Connection, createPool, type Pool } from 'mysql2';
import type { PoolClient, QueryResult } from 'pg';
import QueryStream from 'pg-query-stream';
import { LockConfigError, LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { sqlClientOf, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { entityManagerOf } from '../../lib/providers/typeorm/index.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { LockProcesses, NUMBERS, SqlBackend, type SqlType } from '../typeorm/sql-backend.js';
import { depositByDrizzle, fencedWriteByDrizzle } from './drizzle.mjs';
import { type SqlServer, startMySqlOrMariaDb } from '../servers/sql-server.mjs';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

/** Adds `amount` to the balance of account 1 on the connection of a lock, and returns the previous balance. */
type Deposit = (connection: never, amount: number) => Promise<number>;

interface Tables {
  readonly account: { readonly id: number; readonly balance: number };
}

const one = { release: () => undefined };
const onMysql: Record<string, Deposit> = {
  async mysql2(connection: Connection, amount) {
    const client = connection.promise();
    const [rows] = await client.query('SELECT balance FROM account WHERE id = ?', [1]);
    await client.execute('UPDATE account SET balance = balance + ? WHERE id = ?', [amount, 1]);
    return (rows as { balance: number }[])[0]!.balance;
  },
  Drizzle: (connection: object, amount) => depositByDrizzle('mariadb', connection, amount),
  Kysely(connection: object, amount) {
    const pool = {
      getConnection: (done: (error: null, connection: unknown) => void) => done(null, Object.assign(connection, one)),
      end: () => undefined,
    };
    return byKysely(new Kysely({ dialect: new MysqlDialect({ pool: pool as never }) }), amount);
  },
  Knex: (connection: object, amount) => byKnex('mysql2', connection, amount),
};
const onPostgres: Record<string, Deposit> = {
  async pg(client: PoolClient, amount) {
    const { rows } = await client.query<{ balance: number }>('SELECT balance FROM account WHERE id = $1', [1]);
    await client.query({ text: 'UPDATE account SET balance = balance + $1 WHERE id = $2', values: [amount, 1] });
    return rows[0]!.balance;
  },
  Drizzle: (connection: object, amount) => depositByDrizzle('postgres', connection, amount),
  Kysely(connection: PoolClient, amount) {
    const pool = { connect: () => Promise.resolve(Object.assign(connection, one)), end: () => Promise.resolve() };
    return byKysely(new Kysely({ dialect: new PostgresDialect({ pool: pool }) }), amount);
  },
  Knex: (connection: object, amount) => byKnex('pg', connection, amount),
};

async function byKysely(db: Kysely<Tables>, amount: number): Promise<number> {
  const { balance } = await db.selectFrom('account').select('balance').where('id', '=', 1).executeTakeFirstOrThrow();
  await db
    .updateTable('account')
    .set({ balance: balance + amount })
    .where('id', '=', 1)
    .execute();
  return balance;
}

async function byKnex(client: string, connection: object, amount: number): Promise<number> {
  const db = knex({ client });
  const [row] = await db<Tables['account']>('account').connection(connection).where({ id: 1 });
  await db('account')
    .connection(connection)
    .where({ id: 1 })
    .update({ balance: row!.balance + amount });
  await db.destroy();
  return row!.balance;
}

describe.each(databases)('sqlClientOf on %s', (type) => {
  const processes = new LockProcesses();
  const backend = SqlBackend.forTests(type);
  let locks: LockManager;
  const balance = async () => {
    const [row] = await backend.admin.query<{ balance: number }[]>('SELECT balance FROM account WHERE id = 1');
    return row!.balance;
  };
  const deposits = Object.entries(type === 'mariadb' ? onMysql : onPostgres);
  const [, plain] = deposits[0]!;
  const clientOf = (lock: Lock) => sqlClientOf<never>(lock);

  beforeAll(async () => {
    await backend.admin.query('CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)');
    await backend.admin.query('INSERT INTO account (id, balance) VALUES (1, 0)');
  }, 60_000);
  beforeEach(async () => {
    await backend.admin.query('UPDATE account SET balance = 10');
    locks = await processes.start(await backend.rows());
  });

  it.each(deposits)("%s writes in the lock's transaction", async (_, deposit) => {
    await locks.withLock('account:1', async (lock) => {
      expect(await deposit(clientOf(lock), 5)).toBe(10);
      expect(await balance()).toBe(10);
    });
    expect(await balance()).toBe(15);
    const failure = new Error('of the task');
    const task = locks.withLock('account:1', async (lock) => {
      await deposit(clientOf(lock), 5);
      throw failure;
    });
    await expect(task).rejects.toBe(failure);
    expect(await balance()).toBe(15);
  });

  it.each(deposits)('%s writes nothing if the lock is lost, and its later statements fail', async (_, deposit) => {
    const task = locks.withLock('account:1', async (lock) => {
      const client = clientOf(lock);
      await deposit(client, 5);
      await backend.revoke('test', 'account:1');
      while (lock.isHeld()) await new Promise((resolve) => setImmediate(resolve));
      await expect(deposit(client, 5)).rejects.toThrow();
      expect(() => sqlClientOf(lock)).toThrow(LockLostError);
    });
    await expect(task).rejects.toBeInstanceOf(LockLostError);
    expect(await balance()).toBe(10);
  });

  it.each(deposits)('%s fails after the task has ended', async (_, deposit) => {
    const client = await locks.withLock('account:1', async (lock) => {
      await deposit(clientOf(lock), 5);
      return { late: clientOf(lock) };
    });
    await expect(deposit(client.late, 5)).rejects.toThrow();
    expect(await balance()).toBe(15);
  });

  if (type === 'postgres') {
    it('a Knex statement without a reply does not keep the lock valid', async () => {
      const guard = 600_000;
      const time = new FakeClock();
      const provider = await backend.rows({ sessionGuard: guard, commandTimeout: '24h' });
      const lock = await (await processes.start(provider, { clock: time })).acquire('account:1');
      const send = (sql: string) => knex({ client: 'pg' }).raw<QueryResult>(sql).connection(sqlClientOf<object>(lock));
      const { rows } = await send('SELECT client_port FROM pg_stat_activity WHERE pid = pg_backend_pid()');
      backend.wireOf(provider)?.drop((rows[0] as { client_port: number }).client_port);
      // Shortly before the first heartbeat, behind which the statement would queue.
      await time.advance(guard / 4);
      const unanswered = send('SELECT 1').catch((error: unknown) => error);
      await time.advance(guard / 4);
      expect(lock.isHeld()).toBe(true);
      // The server's guard frees the lock, counted from the last statement that reached it.
      await time.advance(guard / 2);
      expect(lock.isHeld()).toBe(false);
      await time.advance(86_400_000);
      expect(await unanswered).toBeInstanceOf(Error);
    });

    it("a callback in a statement's configuration gets the reply, or the error if the statement is not sent", async () => {
      const lock = await locks.acquire('account:1');
      const { query } = sqlClientOf<{ query(config: object): void }>(lock);
      const answers = () =>
        new Promise<unknown[]>((resolve) => {
          query({ text: 'SELECT $1::int AS n', values: [7], callback: (...answer: unknown[]) => resolve(answer) });
        });
      expect(await answers()).toMatchObject([null, { rows: [{ n: 7 }] }]);
      await lock.release();
      expect(await answers()).toMatchObject([{ message: expect.stringMatching(/was not executed/) as string }]);
    });
  }

  it('sends statements one after another, however many a task forgets to await', async () => {
    await locks.withLock('account:1', async (lock) => {
      await Promise.all(Array.from({ length: 20 }, () => plain(clientOf(lock), 0)));
      await plain(clientOf(lock), 1);
    });
    expect(await balance()).toBe(11);
  });

  /** Reads rows as a stream. */
  const open = (lock: Lock, sql: string): Readable =>
    type === 'mariadb'
      ? sqlClientOf<Connection>(lock).query(sql).stream()
      : sqlClientOf<PoolClient>(lock).query(new QueryStream(sql, [], { batchSize: 10 }));
  const NUMBERED = NUMBERS[type](1_000);

  it('rejects a row stream with the reason, and keeps working', async () => {
    await locks.withLock('account:1', async (lock) => {
      expect(() => open(lock, NUMBERED)).toThrow(/cannot be streamed in a lock's transaction/);
      await plain(clientOf(lock), 5);
      expect(() => open(lock, NUMBERED)).toThrow(/in pages or on another connection/);
      await plain(clientOf(lock), 1);
    });
    expect(await balance()).toBe(16);
  });

  it("applies the application's connection settings, then our isolation level", async () => {
    const isPostgres = type === 'postgres';
    const provider = await backend.rows({
      connectionInitSql: isPostgres
        ? [`SET TIME ZONE 'Asia/Tokyo'`, `SET default_transaction_isolation = 'serializable'`]
        : [`SET time_zone = '+09:00'`, 'SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE'],
    });
    const own = await processes.start(provider);
    await using lock = await own.acquire('account:1');
    const [zone, isolation] = await settingsOf(lock);
    expect(zone).toMatch(isPostgres ? 'Asia/Tokyo' : '+09:00');
    expect(isolation).toMatch(/^read.committed$/i);
  });

  async function settingsOf(lock: Lock): Promise<string[]> {
    if (type === 'postgres') {
      const sql = `SELECT current_setting('TimeZone') AS zone, current_setting('transaction_isolation') AS level`;
      const { rows } = await sqlClientOf<PoolClient>(lock).query<{ zone: string; level: string }>(sql);
      return [rows[0]!.zone, rows[0]!.level];
    }
    const client = sqlClientOf<Connection>(lock).promise();
    const [rows] = await client.query(`SELECT @@time_zone AS zone`);
    const [found] = await client.query(
      `SHOW SESSION VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')`,
    );
    return [(rows as { zone: string }[])[0]!.zone, (found as { Value: string }[])[0]!.Value];
  }

  it('a connectionInitSql statement that the server rejects fails the boot', async () => {
    const provider = await backend.rows({ connectionInitSql: ['SET nothing_like_it = 1 AND'] });
    const start = processes.start(provider);
    await expect(start).rejects.toBeInstanceOf(LockConfigError);
    await expect(start).rejects.toThrow(/rejected "SET nothing_like_it = 1 AND" from connectionInitSql/);
  });

  it('a first statement without a reply causes one error and no unhandled rejection', async () => {
    const unhandled: unknown[] = [];
    const note = (error: unknown) => unhandled.push(error);
    process.on('unhandledRejection', note);
    const provider = await backend.rows({ sessionGuard: '1s', commandTimeout: '500ms' });
    const own = await processes.start(provider);
    const task = own.withLock('account:1', (lock) => {
      backend.wireOf(provider)?.freeze();
      return plain(clientOf(lock), 5);
    });
    await expect(task).rejects.toThrow();
    backend.wireOf(provider)?.thaw();
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', note);
    expect(unhandled).toEqual([]);
    expect(await balance()).toBe(10);
  });

  it('has no EntityManager, and throws for a lock without a transaction', async () => {
    await using lock = await locks.acquire('account:1');
    expect(() => entityManagerOf(lock)).toThrow(/is not a TypeOrmRowLockProvider. Use sqlClientOf/);
    const leases = await processes.start(await backend.leases());
    await using lease = await leases.acquire('account:1');
    expect(() => sqlClientOf(lease)).toThrow(LockConfigError);
  });
});

// The statements that docs/fencing.md shows for Postgres, with mysql2.
describe('a fenced write', () => {
  let server: SqlServer;
  let pool: Pool;
  let query: Knex;
  let kysely: Kysely<{ fenced: { id: number; balance: number; fence: bigint | null } }>;
  let locks: LockManager;

  beforeAll(async () => {
    server = await startMySqlOrMariaDb();
    const uri = server.url.replace(/^mariadb:/, 'mysql:');
    pool = createPool({ uri });
    query = knex({ client: 'mysql2', connection: uri });
    kysely = new Kysely({ dialect: new MysqlDialect({ pool: createPool({ uri }) }) });
    locks = new LockManager({ providers: { sql: new SqlVersionLockProvider({ url: server.url, synchronize: true }) } });
    await locks.start();
    await query.raw('CREATE TABLE fenced (id INT PRIMARY KEY, balance INT NOT NULL, fence BIGINT NULL)');
  }, 60_000);
  beforeEach(async () => {
    await query.raw('REPLACE INTO fenced VALUES (1, 0, NULL)');
  });
  afterAll(async () => {
    await locks.stop();
    await Promise.all([query.destroy(), kysely.destroy(), pool.promise().end()]);
    await server.stop();
  });

  const writes: Record<string, (balance: number, fence: bigint) => Promise<boolean>> = {
    Drizzle: (balance, fence) => fencedWriteByDrizzle(pool, balance, fence),
    async Kysely(balance, fence) {
      const { numUpdatedRows } = await kysely
        .updateTable('fenced')
        .set({ balance, fence })
        .where('id', '=', 1)
        .where((row) => row.or([row('fence', 'is', null), row('fence', '<=', fence)]))
        .executeTakeFirstOrThrow();
      return numUpdatedRows === 1n;
    },
    async Knex(balance, fence) {
      const changed = await query('fenced')
        .where({ id: 1 })
        .where((row) => void row.whereNull('fence').orWhere('fence', '<=', String(fence)))
        .update({ balance, fence: String(fence) });
      return changed === 1;
    },
  };

  it.each(Object.entries(writes))('%s rejects only a late write with mysql2', async (_, write) => {
    const late = await locks.acquire('account:1');
    await locks.admin.forceRelease('account:1');
    const next = await locks.acquire('account:1');
    expect(await write(1, next.fencingToken!)).toBe(true);
    expect(await write(1, next.fencingToken!)).toBe(true); // changes nothing
    expect(await write(2, late.fencingToken!)).toBe(false);
    await next.release();
    const [row] = await query<{ balance: number }>('fenced').select('balance');
    expect(row).toEqual({ balance: 1 });
  });
});
