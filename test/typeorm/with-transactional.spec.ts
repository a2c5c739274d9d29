import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type SqlServer, startMariaDb } from '../servers/sql-server.mjs';

interface Report {
  warnings: string[];
  reportWarnings: string[];
  lockOutside: { isFreeBeforeCommit: boolean; leftBeforeCommit: number; answer: number; nextReads: number };
  lockInside: { isFreeBeforeCommit: boolean; leftBeforeCommit: number };
  failed: { error: string; nextReads: number };
  retried: { answer: number; runs: number; nextReads: number };
}

// 10 lamps before each.
describe('with @Transactional of nestjs-cls, on MariaDB', () => {
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

  it('a lock above the transaction is held until after the commit, and the next holder reads what was written', () => {
    expect(report.lockOutside).toEqual({ isFreeBeforeCommit: false, leftBeforeCommit: 10, answer: 9, nextReads: 9 });
  });

  it('a lock below it is free before the commit, and the next holder reads what was there before', () => {
    expect(report.lockInside).toEqual({ isFreeBeforeCommit: true, leftBeforeCommit: 10 });
  });

  it('the wrong order is warned about at boot, once and by name; the right one is not', () => {
    expect(report.warnings).toEqual([
      'Shop.lockInside releases its lock before the commit if the decorator above @DistributedLock is @Transactional: put @DistributedLock above it.',
    ]);
  });

  it('@UseCls above the lock is no mistake', () => {
    expect(report.reportWarnings).toEqual([]);
  });

  it('a method that fails is rolled back before the lock is free', () => {
    expect(report.failed).toEqual({ error: 'of the method', nextReads: 10 });
  });

  it('@RetryOnConflict between them gives each run a transaction of its own, under one hold', () => {
    expect(report.retried).toEqual({ answer: 9, runs: 3, nextReads: 9 });
  });

  it('nothing is left open at the end', () => {
    expect(exitCode).toBe(0);
  });
});
