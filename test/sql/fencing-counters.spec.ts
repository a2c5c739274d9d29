import { expect, jest } from '@jest/globals';
import { LockTable } from '../../lib/providers/sql/table/lock-table.js';
import { contextFor } from '../backend-context.js';
import { requestFor } from '../direct-backend.js';
import { SqlBackend, TABLE } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

describe.each(['mariadb', 'postgres'] as const)('fencing counters on %s', (type) => {
  let backend: SqlBackend;

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterAll(() => backend.stop());

  it('wait for a transaction that prevents their row', async () => {
    const provider = await backend.advisory({ fencing: true });
    const locks = provider.createBackend(contextFor());
    await locks.connect();
    const other = backend.admin.createQueryRunner();
    await other.startTransaction('REPEATABLE READ');
    // On MariaDB it also locks the gaps between the rows.
    await other.query(`SELECT name FROM ${TABLE} FOR UPDATE`);
    const created = jest.spyOn(LockTable.prototype, 'createRow');
    try {
      const request = requestFor('in the way', 'one');
      const granted = locks.acquire(request);
      await until(() => created.mock.results.length > 0, 'it creates its row');
      expect(await created.mock.results[0]?.value).toBe(type === 'postgres');
      await other.rollbackTransaction();
      expect(await granted).toMatchObject({ fencingToken: expect.any(BigInt) });
    } finally {
      created.mockRestore();
      await other.release();
      await locks.close();
    }
  });
});
