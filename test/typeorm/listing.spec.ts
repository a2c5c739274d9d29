import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { expect } from '@jest/globals';
import type { DataSource } from 'typeorm';
import type { LockInfo } from '../../lib/api/lock-info.js';
import { LockConfigError } from '../../lib/api/errors.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { FAMILIES } from '../../lib/providers/sql/connection/databases.js';
import { kindOf, observed } from './observed-driver.js';
import { LockProcesses, NUMBERS, SqlBackend, type SqlType, TABLE } from './sql-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

const numberOf = { mariadb: 'LPAD(n, 6, 0)', postgres: `lpad(n::text, 6, '0')` };
const concat = (...parts: string[]) => `CONCAT(${parts.join(', ')})`;

describe.each(databases)('listing leases on %s', (type) => {
  const { now } = FAMILIES[type === 'mariadb' ? 'mysql' : type];
  const backend = SqlBackend.forTests(type);
  let admin: DataSource;
  const processes = new LockProcesses();

  beforeAll(async () => {
    admin = backend.admin;
  }, 60_000);

  async function application(namespace: string, instance = 'ann', dataSource = backend.source()): Promise<LockManager> {
    const provider = new TypeOrmVersionLockProvider({ dataSource, synchronize: true, commandTimeout: '10s' });
    const locks = await processes.start(provider, { namespace, instance });
    // A test must not depend on how fast the process records its name.
    await locks.admin.backend(VersionLockBackend).register();
    return locks;
  }

  async function listOf(locks: LockManager, prefix?: string): Promise<LockInfo[]> {
    const all: LockInfo[] = [];
    for await (const lock of locks.admin.list({ prefix })) all.push(lock);
    return all.sort((one, other) => (one.key < other.key ? -1 : 1));
  }
  const keysOf = async (locks: LockManager, prefix?: string) => (await listOf(locks, prefix)).map(({ key }) => key);

  /** Inserts rows `many:000001` and so on. Those for which `isHeld` is true are held for ten minutes. */
  async function insert(namespace: string, rows: number, isHeld = '1 = 1'): Promise<void> {
    const name = `'${namespace}#lease:many:'`;
    const row = concat(name, numberOf[type]);
    const expires = `CASE WHEN ${isHeld} THEN ${now} + 600000000 ELSE 1 END`;
    const holder = `'${'ab'.repeat(16)}'`;
    await admin.query(
      `INSERT INTO ${TABLE} (name, token, holder, expires) SELECT ${row}, 7, ${holder}, ${expires} FROM (${NUMBERS[type](rows)}) AS numbers`,
    );
  }

  it('skips a lease or a name whose label was not written by this package', async () => {
    const locks = await application('labels');
    await locks.acquire('first');
    await locks.acquire('second key');
    await locks.acquire('third key');
    await admin.query(`UPDATE ${TABLE} SET label = 'second' WHERE name LIKE 'labels#lease:second%'`);
    expect(await keysOf(locks)).toEqual(['first', 'third key']);
    await admin.query(`UPDATE ${TABLE} SET label = '{' WHERE name LIKE 'labels#instance:%'`);
    expect(await locks.admin.inspect('first')).toMatchObject({ key: 'first', state: 'held' });
  });

  it('finds the namespaces with held leases, however many rows precede them', async () => {
    const [free, some, many] = [await application('a-free'), await application('b-some'), await application('c-many')];
    await (await free.acquire('free')).release();
    await some.acquire('held');
    await insert('a-free', 1_203, 'n < 0');
    await insert('c-many', 1_203, 'n > 1100');
    const found = await many.admin.backend(VersionLockBackend).namespaces();
    expect(found.filter((name) => /^[abc]-/.test(name))).toEqual(['b-some', 'c-many']);
  });

  it('lists keys as they were passed, whatever their rows are named, and filters by a prefix of any characters', async () => {
    const locks = await application('names');
    const keys = [
      ...['order:1', 'order:10', 'order', 'order%3A1', 'order_1', 'orderX1', 'ORDER:1', 'or#er', "o'; --", '~o'],
      ...['é:1', 'é:2 3', '🔑', 'control\u0000\n', '"quoted" \\', `${'long'.repeat(30)}1`, 'long'.repeat(40)],
    ];
    for (const key of keys) await locks.acquire(key);
    expect(await keysOf(locks)).toEqual([...keys].sort());
    for (const prefix of ['order', 'order:1', 'order%', 'order_', 'o', '~', 'é:', 'é:2 ', 'long'.repeat(20)]) {
      expect(await keysOf(locks, prefix)).toEqual(keys.filter((key) => key.startsWith(prefix)).sort());
    }
  });

  it.each([500, 1_000, 1_203])('lists each of %i held rows exactly once, page by page', async (rows) => {
    const locks = await application(`pages${rows}`);
    await insert(`pages${rows}`, rows);
    const keys = await keysOf(locks);
    expect(keys).toHaveLength(rows);
    expect(new Set(keys).size).toBe(rows);
    expect(await keysOf(locks, 'many:00050')).toHaveLength(rows === 500 ? 1 : 10);
  });

  it('reads at most one page ahead, and keeps no earlier page in memory', async () => {
    let pages = 0;
    const source = observed(backend.source(), (sql) => {
      if (kindOf(sql) === 'page') pages += 1;
      return undefined;
    });
    const locks = await application('large', 'ann', source);
    await insert('large', 40_000, 'MOD(n, 2) = 0');
    let [count, ahead] = [0, 0];
    const holders = new Set<string>();
    const listed: WeakRef<LockInfo>[] = [];
    for await (const lock of locks.admin.list()) {
      holders.add(lock.instances.join());
      listed.push(new WeakRef(lock));
      count += 1;
      // Half of a page's 500 rows are held.
      ahead = Math.max(ahead, pages - Math.ceil(count / 250));
      if (count % 4_000 > 0) continue;
      await new Promise((resolve) => setImmediate(resolve));
      global.gc?.();
      expect(listed.filter((each) => each.deref() !== undefined).length).toBeLessThan(1_000);
    }
    // A purge would delete the rows one by one.
    await admin.query(`DELETE FROM ${TABLE} WHERE name LIKE 'large#lease:%'`);
    expect(count).toBe(20_000);
    expect(ahead).toBeLessThanOrEqual(1);
    expect([...holders]).toEqual(['abababababab']);
  }, 120_000);

  it("names an instance by its id once a purge has deleted its record, which happens only after the record's day", async () => {
    const [ann, bob] = [await application('instances', 'ann'), await application('instances', 'bob')];
    const lock = await ann.acquire('a');
    await bob.acquire('b');
    const purge = () => bob.admin.purge({ unusedFor: '1s' });
    await purge();
    expect((await listOf(bob)).map(({ instances }) => instances)).toEqual([['ann'], ['bob']]);
    const id = lock.holder.slice(0, 12);
    await admin.query(`UPDATE ${TABLE} SET expires = 1 WHERE name = 'instances#instance:${id}'`);
    expect(await purge()).toBeGreaterThan(0);
    expect((await listOf(bob)).map(({ instances }) => instances)).toEqual([[id], ['bob']]);
    await ann.admin.backend(VersionLockBackend).register();
    expect((await listOf(bob)).map(({ instances }) => instances)).toEqual([['ann'], ['bob']]);
  });

  it('reports no start time while tokens run ahead of the clock', async () => {
    const locks = await application('ahead');
    await (await locks.acquire('a')).release();
    await admin.query(`UPDATE ${TABLE} SET token = ${now} + 3600000000 WHERE name = 'ahead#lease:a'`);
    await locks.acquire('a');
    await locks.acquire('b');
    const [a, b] = await listOf(locks);
    expect([a?.since, b?.since]).toEqual([null, expect.any(Date)]);
  });

  it('throws for row and advisory locks, with an error that says where to look', async () => {
    const views = { mariadb: [/performance_schema.data_locks/, /metadata_lock/], postgres: [/pg_locks/, /pg_locks/] };
    for (const [index, provider] of [await backend.provider(), await backend.advisoryProvider()].entries()) {
      const locks = await processes.start(provider);
      expect(() => locks.admin.list()).toThrow(LockConfigError);
      expect(() => locks.admin.list()).toThrow(views[type][index]!);
    }
  });
});
