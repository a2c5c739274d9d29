import type { LockManager } from '../../lib/core/lock-manager.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { LockProcesses, SqlBackend, type SqlType } from '../typeorm/sql-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(databases)('starting locks on %s', (type) => {
  const processes = new LockProcesses();
  const backend = SqlBackend.forTests(type);
  afterEach(() => backend.admin.query('DROP TABLE IF EXISTS distributed_lock'));

  const options = () => ({ url: backend.server.url, synchronize: true, fencing: true, commandTimeout: '10s' });
  const version = () => new SqlVersionLockProvider(options());
  const row = () => new SqlRowLockProvider(options());
  const advisory = () => new SqlAdvisoryLockProvider(options());
  // A process writes these rows some time after its start.
  const LASTING = `WHERE name NOT LIKE 'test#instance:%' AND name <> 'test#purge'`;
  const namesOf = async (where: string) => {
    const rows = await backend.admin.query<{ name: string | Buffer }[]>(`SELECT name FROM distributed_lock ${where}`);
    return rows.map(({ name }) => name.toString()).sort();
  };

  /** Makes every later UPDATE of the table fail. */
  async function refuseUpdates(): Promise<void> {
    if (type === 'mariadb') {
      await backend.admin.query(
        `CREATE TRIGGER refuse BEFORE UPDATE ON distributed_lock FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not here'`,
      );
      return;
    }
    await backend.admin.query(
      `CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not here'; END $$`,
    );
    await backend.admin.query(
      'CREATE TRIGGER refuse BEFORE UPDATE ON distributed_lock FOR EACH ROW EXECUTE FUNCTION refuse()',
    );
  }

  it.each([
    ['version', version],
    ['row', row],
    ['advisory', advisory],
  ])('fails where each %s lock would fail, and reports the reason', async (_, provider) => {
    await processes.start(provider());
    await refuseUpdates();
    await expect(processes.start(provider())).rejects.toThrow(/not here/);
  });

  it("fails if a free lock can't be acquired, since every lock may be busy for the same reason", async () => {
    await processes.start(row());
    const runner = backend.admin.createQueryRunner();
    await runner.startTransaction();
    await runner.query(`SELECT 1 FROM distributed_lock WHERE name = 'test#probe:start:probe' FOR UPDATE`);
    await expect(processes.start(row())).rejects.toThrow(/was busy for 8 s/);
    await runner.rollbackTransaction();
    await runner.release();
    await processes.start(row());
  }, 60_000);

  it('succeeds in many processes with version, row and advisory locks concurrently, with one row per kind', async () => {
    await processes.start(version());
    const all = Array.from({ length: 8 }, () => [version(), row(), advisory()]).flat();
    await Promise.all(all.map((provider) => processes.start(provider)));
    expect(await namesOf(LASTING)).toEqual([
      expect.stringMatching(/^test#probe:start#fence:\d+$/),
      'test#probe:start#lease:limited-probe',
      'test#probe:start#lease:probe',
      'test#probe:start:probe',
    ]);
  });

  it('leaves no lock to list and nothing to purge', async () => {
    const [leases, rows] = [await processes.start(version()), await processes.start(row())];
    const listed: unknown[] = [];
    for await (const lock of leases.admin.list()) listed.push(lock);
    expect(listed).toEqual([]);
    await (await rows.acquire('used')).release();
    await backend.admin.query('UPDATE distributed_lock SET expires = 1');
    const purge = (locks: LockManager) => locks.admin.purge({ unusedFor: '10m' });
    await backend.admin.query(`DELETE FROM distributed_lock WHERE name LIKE '%#instance:%' OR name = 'test#purge'`);
    const before = await namesOf(LASTING);
    expect(await purge(rows)).toBe(1);
    expect(await purge(leases)).toBe(0);
    expect(await namesOf(LASTING)).toEqual(before.filter((name) => name !== 'test:used'));
  });
});
