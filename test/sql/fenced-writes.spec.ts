import knex, { type Knex } from 'knex';
import { Kysely, MysqlDialect } from 'kysely';
import { createPool, type Pool } from 'mysql2';
import { LockManager } from '../../lib/core/lock-manager.js';
import { SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { type SqlServer, startMySqlOrMariaDb } from '../servers/sql-server.mjs';
import { fencedWriteByDrizzle } from './drizzle.mjs';

// The statements that docs/fencing.md shows for Postgres, with mysql2.

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

it.each(Object.entries(writes))('%s refuses a late write with mysql2, and no other', async (_, write) => {
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
