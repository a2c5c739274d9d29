import { type VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { type RowLockBackend } from '../../lib/providers/sql/session-lock-backends.js';
import { jest } from '@jest/globals';
import { LockConfigError } from '../../lib/api/errors.js';
import type { Grant, LockBackend, LockProvider, RecordStore, StoredRecord } from '../../lib/api/lock-provider.js';
import { leasesAndInstancesOf, entryNameOf } from '../../lib/providers/sql/table/lock-name.js';
import { LockTable } from '../../lib/providers/sql/table/lock-table.js';
import { contextFor } from '../backend-context.js';
import { requestFor } from '../direct-backend.js';
import { SqlBackend, TABLE } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

const DAY_IN_MICROSECONDS = 86_400_000_000;

describe.each(['mariadb', 'postgres'] as const)('records on %s', (type) => {
  const value = type === 'mariadb' ? '?' : '$1';
  const backend = SqlBackend.forTests(type);
  const started: LockBackend[] = [];

  afterEach(async () => {
    await Promise.all(started.splice(0).map((each) => each.close()));
  });

  async function start(provider: LockProvider, namespace = 'shop'): Promise<LockBackend & { records: RecordStore }> {
    const made = provider.createBackend(contextFor([], { namespace }));
    started.push(made);
    await made.connect();
    return made as LockBackend & { records: RecordStore };
  }
  async function rowOf(name: string) {
    const rows = await backend.admin.query<Record<'token' | 'expires' | 'holders' | 'label', unknown>[]>(
      `SELECT token, expires, holders, label FROM ${TABLE} WHERE name = ${value}`,
      [entryNameOf('shop', 'run', name)],
    );
    const [row] = rows;
    return row && { token: Number(row.token), expires: Number(row.expires), text: String(row.holders) };
  }
  const valueOf = async (answer: Promise<StoredRecord>) => (await answer).value;
  const kinds = {
    version: () => backend.leases({ commandTimeout: '10s' }),
    row: () => backend.rows(),
    advisory: () => backend.advisory(),
  };

  it('records are shared by all kinds of locks in the table', async () => {
    const [version, row, advisory] = await Promise.all(Object.values(kinds).map(async (make) => start(await make())));
    expect(await valueOf(version!.records.replace('shared', null, 'a'))).toBe('a');
    expect(await valueOf(row!.records.replace('shared', 'a', 'b'))).toBe('b');
    expect(await valueOf(advisory!.records.replace('shared', 'a', 'c'))).toBe('b');
    expect(await valueOf(advisory!.records.read('shared'))).toBe('b');
  });

  it.each<[string, () => Promise<() => Promise<object>>, object]>([
    [
      'record',
      async () => {
        const { records } = await start(await kinds.version());
        return () => records.replace('in the way', null, 'a');
      },
      { value: 'a' },
    ],
    [
      'fencing counter',
      async () => {
        const locks = await start(await backend.advisory({ fencing: true }));
        return () => locks.acquire(requestFor('in the way', 'one')) as Promise<Grant>;
      },
      { fencingToken: expect.any(BigInt) as bigint },
    ],
  ])('creating a %s waits for a transaction that blocks its row', async (_, prepare, answer) => {
    const write = await prepare();
    const other = backend.admin.createQueryRunner();
    await other.startTransaction('REPEATABLE READ');
    // On MariaDB, this also locks the gaps between the rows.
    await other.query(`SELECT name FROM ${TABLE} FOR UPDATE`);
    const created = jest.spyOn(LockTable.prototype, 'createRow');
    try {
      const written = write();
      await until(() => created.mock.results.length > 0, 'it creates its row');
      expect(await created.mock.results[0]?.value).toBe(type === 'postgres');
      await other.rollbackTransaction();
      expect(await written).toMatchObject(answer);
    } finally {
      created.mockRestore();
      await other.release();
    }
  });

  it('records expire 400 days after each write, which always changes the row and stores its time', async () => {
    const { records } = await start(await kinds.version());
    const first = await records.replace('written', null, 'é');
    const before = (await rowOf('written'))!;
    expect(before.text).toBe('"\\u00e9"');
    expect(before.token / 1_000).toBeCloseTo(first.serverTime, 2);
    expect(before.expires - before.token).toBe(400 * DAY_IN_MICROSECONDS);
    // The server's clock was set back since, to before the last write.
    await backend.admin.query(`UPDATE ${TABLE} SET expires = expires + ${DAY_IN_MICROSECONDS} WHERE name = ${value}`, [
      entryNameOf('shop', 'run', 'written'),
    ]);
    const second = await records.replace('written', 'é', 'é');
    const after = (await rowOf('written'))!;
    expect(after.expires).toBe(before.expires + DAY_IN_MICROSECONDS + 1);
    expect(after.token / 1_000).toBeCloseTo(second.serverTime, 2);
    expect(second.serverTime).toBeGreaterThan(first.serverTime);
    await records.replace('written', 'other', 'never');
    expect(await rowOf('written')).toEqual(after);
  });

  it('records outlive every purge, even if a row was not written for a year', async () => {
    const version = (await start(await kinds.version())) as unknown as VersionLockBackend;
    const row = (await start(await kinds.row())) as unknown as RowLockBackend;
    for (const name of ['order', 'a b', 'zzz', '~']) await version.records.replace(name, null, name);
    await backend.admin.query(
      `UPDATE ${TABLE} SET expires = expires - ${365 * DAY_IN_MICROSECONDS} WHERE name LIKE 'shop#run:%'`,
    );
    await backend.admin.query(`INSERT INTO ${TABLE} (name, expires) VALUES ('shop#lease:old', 1)`);
    expect(await version.purge({ unusedFor: '1s' })).toBeGreaterThanOrEqual(1);
    await row.purge({ unusedFor: '1s' });
    await version.register();
    for (const name of ['order', 'a b', 'zzz', '~']) expect(await valueOf(version.records.read(name))).toBe(name);
  });

  it('the names of records keep them out of the rows that a process cleans each hour', () => {
    const [first, last] = leasesAndInstancesOf('shop');
    for (const name of ['', '!', 'order', 'a b', '~']) {
      const row = entryNameOf('shop', 'run', name);
      expect([row, row > first && row < last]).toEqual([row, false]);
    }
  });

  it('a row that this package did not write is rejected with its name and the remedy', async () => {
    const { records } = await start(await kinds.version());
    await records.replace('damaged', null, 'a');
    await backend.admin.query(`UPDATE ${TABLE} SET holders = 'a' WHERE name = ${value}`, [
      entryNameOf('shop', 'run', 'damaged'),
    ]);
    for (const operation of [() => records.read('damaged'), () => records.replace('damaged', 'a', 'b')]) {
      await expect(operation()).rejects.toThrow(LockConfigError);
      await expect(operation()).rejects.toThrow(
        'Row "shop#run:damaged" in the lock table is not a record written by this package. Delete the row.',
      );
    }
    await backend.admin.query(`DELETE FROM ${TABLE} WHERE name = ${value}`, [entryNameOf('shop', 'run', 'damaged')]);
    expect(await valueOf(records.replace('damaged', null, 'b'))).toBe('b');
  });

  it("records of advisory locks need the table, which advisory locks don't", async () => {
    const options = { table: 'late', synchronize: false };
    const without = await start(await backend.advisory(options));
    const refused = without.records.replace('job', null, 'a');
    await expect(refused).rejects.toThrow(LockConfigError);
    await expect(refused).rejects.toThrow(
      /^Lock provider "main": the lock table does not exist\. Create it in a migration \(CREATE TABLE .*late.*npx nestjs-distributed-lock sql.*synchronize/,
    );
    await expect(refused).rejects.toMatchObject({ provider: 'main' });
    await expect(without.records.list()[Symbol.asyncIterator]().next()).rejects.toThrow(LockConfigError);
    const creating = await start(await backend.advisory({ ...options, synchronize: true }));
    expect(await valueOf(creating.records.replace('job', null, 'a'))).toBe('a');
    expect(await valueOf(without.records.replace('job', 'a', 'b'))).toBe('b');
  });
});
