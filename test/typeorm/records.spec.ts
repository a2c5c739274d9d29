import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { DataSource } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockProvider, Records } from '../../lib/api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import {
  LockRecords1700000000001,
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { describeRecords } from '../contract/describe-records.js';
import { SqlBackend, type SqlType } from './sql-backend.js';

const PROVIDERS = [TypeOrmRowLockProvider, TypeOrmVersionLockProvider, TypeOrmAdvisoryLockProvider];
const databases: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(databases)('records on %s', (type) => {
  let backend: SqlBackend;
  const managers: LockManager[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterEach(() => Promise.all(managers.splice(0).map((manager) => manager.stop())));
  afterAll(() => backend.stop());

  async function started<P extends LockProvider>(provider: P): Promise<P & { readonly records: Records }> {
    const locks = new LockManager({ providers: { sql: provider }, namespace: 'test', shutdownGrace: 0 });
    managers.push(locks);
    await locks.start();
    const { records } = provider;
    if (!records) throw new Error('It keeps no records.');
    return Object.assign(provider, { records });
  }
  const process = async (Provider = PROVIDERS[0]!, options = {}) =>
    started(
      await backend.wired(
        (dataSource) => new Provider({ dataSource, synchronize: true, statementTimeout: '10s', ...options }),
      ),
    );
  async function revisionOf(name: string): Promise<number> {
    const [row] = await backend.admin.query<{ revision: unknown }[]>(
      `SELECT revision FROM distributed_lock_record WHERE name = 'test:${name}'`,
    );
    return Number(row?.revision);
  }

  let made = 0;
  // Each kind of provider in turn: they share the table.
  describeRecords(async () => (await process(PROVIDERS[(made += 1) % PROVIDERS.length])).records);

  it('a confirmation is a write, and what stands already is written once more', async () => {
    const { records } = await process();
    await records.compareAndSet('confirmed', null, 'a');
    const before = await revisionOf('confirmed');
    expect(await records.compareAndSet('confirmed', 'a', 'a')).toBe('a');
    expect(await revisionOf('confirmed')).toBe(before + 1);
    expect(await records.compareAndSet('confirmed', 'gone', 'a')).toBe('a');
    expect(await revisionOf('confirmed')).toBe(before + 2);
    expect(await records.compareAndSet('confirmed', 'gone', 'b')).toBe('a');
    expect(await revisionOf('confirmed')).toBe(before + 2);
  });

  it('a server that does not answer is unavailable in the time of a statement, and what it did can be asked again', async () => {
    const provider = await process(TypeOrmRowLockProvider, { statementTimeout: '1s' });
    const { records } = provider;
    await records.compareAndSet('silent', null, 'a');
    const wire = backend.wireOf(provider)!;
    wire.holdReplies();
    const sentAt = performance.now();
    await expect(records.compareAndSet('silent', 'a', 'b')).rejects.toBeInstanceOf(LockUnavailableError);
    // The time of a statement is 1 s. Nothing else would end the wait.
    expect(performance.now() - sentAt).toBeLessThan(15_000);
    wire.passReplies();
    // The server has written it.
    expect(await records.compareAndSet('silent', 'a', 'b')).toBe('b');
  });

  it('need a table of their own, which a migration makes, and locks do without it', async () => {
    const options = { table: 'recorded', synchronize: false };
    await backend.admin.query('DROP TABLE IF EXISTS recorded_record');
    const { records } = await process(TypeOrmAdvisoryLockProvider, options);
    const [locks] = managers;
    await (await locks!.acquire('k')).release();
    const refused = records.compareAndSet('a', null, 'a');
    await expect(refused).rejects.toBeInstanceOf(LockConfigError);
    await expect(refused).rejects.toThrow(/records does not exist.*recorded_record/);
    class AppRecords1700000000001 extends LockRecords1700000000001 {
      override name = 'AppRecords1700000000001';
      override table = 'recorded';
    }
    const source = await backend.source({ migrations: [AppRecords1700000000001] }).initialize();
    await source.runMigrations();
    expect(await records.compareAndSet('a', null, 'a')).toBe('a');
    await source.undoLastMigration();
    await expect(records.compareAndSet('a', 'a', 'b')).rejects.toBeInstanceOf(LockConfigError);
    await source.destroy();
  });
});

it('SQLite keeps no records', () => {
  expect(new TypeOrmVersionLockProvider({ dataSource: new DataSource({ type: 'sqljs' }) }).records).toBeUndefined();
});
