import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { CasStore, LockProvider } from '../../lib/api/lock-provider.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { lockTablesSql } from '../../lib/providers/sql/index.js';
import { describeCasStore } from '../contract/describe-cas-store.js';
import { casStoreOf, SqlBackend, type SqlType } from './sql-backend.js';

const PROVIDERS = [TypeOrmRowLockProvider, TypeOrmVersionLockProvider, TypeOrmAdvisoryLockProvider];
const databases: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(databases)('the compare-and-set store on %s', (type) => {
  let backend: SqlBackend;
  const managers: LockManager[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterEach(() => Promise.all(managers.splice(0).map((manager) => manager.stop())));
  afterAll(() => backend.stop());

  async function process(Provider = PROVIDERS[0]!, options = {}): Promise<{ store: CasStore; provider: LockProvider }> {
    const provider = await backend.wired(
      (dataSource) => new Provider({ dataSource, synchronize: true, commandTimeout: '10s', ...options }),
    );
    const locks = new LockManager({ providers: { sql: provider }, namespace: 'test', shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    return { store: casStoreOf(locks), provider };
  }
  /** Grows with each write. */
  async function revisionOf(name: string): Promise<number> {
    const [row] = await backend.admin.query<{ expires: unknown }[]>(
      `SELECT expires FROM distributed_lock WHERE name = 'test#failover:${name}'`,
    );
    return Number(row?.expires);
  }

  let made = 0;
  // Each kind of provider in turn: they share the table.
  describeCasStore(async () => (await process(PROVIDERS[(made += 1) % PROVIDERS.length])).store);

  it('writes also to confirm a value, and when the new value is there already', async () => {
    const { store } = await process();
    await store.compareAndSet('confirmed', null, 'a');
    const before = await revisionOf('confirmed');
    expect(await store.compareAndSet('confirmed', 'a', 'a')).toBe('a');
    const confirmed = await revisionOf('confirmed');
    expect(confirmed).toBeGreaterThan(before);
    expect(await store.compareAndSet('confirmed', 'gone', 'a')).toBe('a');
    expect(await revisionOf('confirmed')).toBeGreaterThan(confirmed);
    expect(await store.compareAndSet('confirmed', 'gone', 'b')).toBe('a');
    expect(await revisionOf('confirmed')).toBeGreaterThan(confirmed);
  });

  it('fails within the time of a statement when the server does not answer, and the outcome can be asked for again', async () => {
    const { store, provider } = await process(TypeOrmRowLockProvider, { commandTimeout: '1s' });
    await store.compareAndSet('silent', null, 'a');
    const wire = backend.wireOf(provider)!;
    wire.holdReplies();
    const sentAt = performance.now();
    await expect(store.compareAndSet('silent', 'a', 'b')).rejects.toBeInstanceOf(LockUnavailableError);
    // The time of a statement is 1 s. Nothing else would end the wait.
    expect(performance.now() - sentAt).toBeLessThan(15_000);
    wire.passReplies();
    // The server has written it.
    expect(await store.compareAndSet('silent', 'a', 'b')).toBe('b');
  });

  it('keeps no record of a job, and no purge deletes what it keeps', async () => {
    const { store } = await process(TypeOrmVersionLockProvider);
    await store.compareAndSet('apart', null, 'a');
    const versions = managers.at(-1)!.admin.backend(VersionLockBackend);
    expect((await versions.records.read('apart')).value).toBeNull();
    for await (const { name } of versions.records.list()) expect(name).not.toBe('apart');
    // In µs: a purge deletes what is past.
    expect(await revisionOf('apart')).toBeGreaterThan((Date.now() + 50 * 365 * 86_400_000) * 1_000);
  });

  it('is in the table of the locks, which advisory locks do without until then', async () => {
    await backend.admin.query('DROP TABLE IF EXISTS recorded');
    const { store } = await process(TypeOrmAdvisoryLockProvider, { table: 'recorded', synchronize: false });
    await (await managers.at(-1)!.acquire('k')).release();
    await expect(store.compareAndSet('a', null, 'a')).rejects.toThrow(/the lock table does not exist.*recorded/);
    for (const statement of lockTablesSql(type === 'mariadb' ? 'mysql' : type, { table: 'recorded' })) {
      await backend.admin.query(statement);
    }
    expect(await store.compareAndSet('a', null, 'a')).toBe('a');
  });
});
