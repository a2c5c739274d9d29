import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type SqlServer, startMariaDb } from '../servers/sql-server.mjs';
import type { DataSource } from 'typeorm';
import { Account } from './accounts.js';
import { SqlBackend } from './sql-backend.js';

interface Report {
  warnings: string[];
  reportWarnings: string[];
  lockOutside: { isFreeBeforeCommit: boolean; leftBeforeCommit: number; answer: number; nextReads: number };
  lockInside: { isFreeBeforeCommit: boolean; leftBeforeCommit: number };
  failed: { error: string; nextReads: number };
  retried: { answer: number; runs: number; nextReads: number };
}

// 10 lamps are in stock before each call.
describe('@Transactional of nestjs-cls, on MariaDB', () => {
  let server: SqlServer;
  let library: CompiledLibrary;
  let report: Report;
  let exitCode: number | null;

  beforeAll(async () => {
    [server, library] = await Promise.all([startMariaDb(), compileLibrary()]);
    const shop = fork(join(import.meta.dirname, 'transactional-shop.mjs'), [library.folder, server.url], {
      execArgv: [],
      timeout: 180_000,
    });
    shop.once('message', (message: Report) => (report = message));
    [exitCode] = (await once(shop, 'exit')) as [number | null];
  }, 240_000);
  afterAll(async () => {
    await library.remove();
    await server.stop();
  });

  it('a lock above the transaction is held until after the commit, and the next holder reads the new value', () => {
    expect(report.lockOutside).toEqual({ isFreeBeforeCommit: false, leftBeforeCommit: 10, answer: 9, nextReads: 9 });
  });

  it('a lock below the transaction is free before the commit, and the next holder reads the old value', () => {
    expect(report.lockInside).toEqual({ isFreeBeforeCommit: true, leftBeforeCommit: 10 });
  });

  it('only the wrong order causes a warning at boot, once and by name', () => {
    expect(report.warnings).toEqual([
      'Shop.lockInside releases its lock before the commit if the decorator above @DistributedLock is @Transactional: put @DistributedLock above it.',
    ]);
  });

  it('@UseCls above the lock is no mistake', () => {
    expect(report.reportWarnings).toEqual([]);
  });

  it('a failed method is rolled back before the lock is free', () => {
    expect(report.failed).toEqual({ error: 'of the method', nextReads: 10 });
  });

  it('@RetryOnConflict between them gives each run its own transaction, under one hold', () => {
    expect(report.retried).toEqual({ answer: 9, runs: 3, nextReads: 9 });
  });

  it('nothing is left open at the end', () => {
    expect(exitCode).toBe(0);
  });
});

const CLIENTS = 8;

// The ways that docs/transactions.md shows to lock within the application's own transaction. Each excludes other
// callers until its end.
describe.each(['mariadb', 'postgres'] as const)('in a transaction of the application on %s', (type) => {
  let backend: SqlBackend;
  let source: DataSource;

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
    source = await backend.source({ entities: [Account], synchronize: true }).initialize();
    await source.query('CREATE TABLE named_lock (name VARCHAR(100) PRIMARY KEY)');
  }, 60_000);
  beforeEach(async () => {
    await source.query('DELETE FROM account');
    await source.query('INSERT INTO account (id, balance) VALUES (1, 100)');
  });
  afterAll(async () => {
    await source.destroy();
    await backend.stop();
  });

  const balance = async () => (await source.getRepository(Account).findOneByOrFail({ id: 1 })).balance;
  const times = (work: () => Promise<unknown>) => Promise.all(Array.from({ length: CLIENTS }, work));

  it('pessimistic_write locks an existing row', async () => {
    await times(() =>
      source.transaction(async (transaction) => {
        const account = await transaction.findOneOrFail(Account, {
          where: { id: 1 },
          lock: { mode: 'pessimistic_write' },
        });
        account.balance -= 1;
        await transaction.save(Account, account);
      }),
    );
    expect(await balance()).toBe(100 - CLIENTS);
  });

  it('a named lock protects a key without a row', async () => {
    const key = 'report:2026-11';
    await times(async () => {
      if (type === 'mariadb') await source.query('INSERT IGNORE INTO named_lock (name) VALUES (?)', [key]);
      await source.transaction(async (transaction) => {
        if (type === 'mariadb') await transaction.query('SELECT name FROM named_lock WHERE name = ? FOR UPDATE', [key]);
        else await transaction.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [key]);
        const { id, balance: before } = await source.getRepository(Account).findOneByOrFail({ id: 1 });
        // Written on another connection: only the lock keeps other callers out.
        await source.getRepository(Account).save({ id, balance: before - 1 });
      });
    });
    expect(await balance()).toBe(100 - CLIENTS);
  });
});
