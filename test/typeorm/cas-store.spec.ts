import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { CasStore, LockProvider } from '../../lib/api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import {
  LockRecords1700000000001,
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
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
      (dataSource) => new Provider({ dataSource, synchronize: true, statementTimeout: '10s', ...options }),
    );
    const locks = new LockManager({ providers: { sql: provider }, namespace: 'test', shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    return { store: casStoreOf(locks), provider };
  }
  async function revisionOf(name: string): Promise<number> {
    const [row] = await backend.admin.query<{ revision: unknown }[]>(
      `SELECT revision FROM distributed_lock_record WHERE name = 'test:${name}'`,
    );
    return Number(row?.revision);
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
    const { store, provider } = await process(TypeOrmRowLockProvider, { statementTimeout: '1s' });
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

  it('needs a table of its own, which a migration creates, and locks do without it', async () => {
    const options = { table: 'recorded', synchronize: false };
    await backend.admin.query('DROP TABLE IF EXISTS recorded_record');
    const { store } = await process(TypeOrmAdvisoryLockProvider, options);
    const [locks] = managers;
    await (await locks!.acquire('k')).release();
    const refused = store.compareAndSet('a', null, 'a');
    await expect(refused).rejects.toBeInstanceOf(LockConfigError);
    await expect(refused).rejects.toThrow(/records does not exist.*recorded_record/);
    class AppRecords1700000000001 extends LockRecords1700000000001 {
      override name = 'AppRecords1700000000001';
      override table = 'recorded';
    }
    const source = await backend.source({ migrations: [AppRecords1700000000001] }).initialize();
    await source.runMigrations();
    expect(await store.compareAndSet('a', null, 'a')).toBe('a');
    await source.undoLastMigration();
    await expect(store.compareAndSet('a', 'a', 'b')).rejects.toBeInstanceOf(LockConfigError);
    await source.destroy();
  });
});
