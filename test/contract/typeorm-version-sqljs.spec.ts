import { afterAll, beforeAll } from '@jest/globals';
import { DataSource } from 'typeorm';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { sqliteHarness } from '../typeorm/version-backend.js';

const dataSource = new DataSource({ type: 'sqljs' });

beforeAll(async () => {
  await dataSource.initialize();
});
afterAll(() => dataSource.destroy());

console.warn('NOT RUN: the cases that cut a provider off. This database is in the process.');

const harness = sqliteHarness(
  () => dataSource,
  () => dataSource,
);

// The database works in the event loop of its callers, so on a busy machine each of them stops all of them for longer.
describeLockProvider('typeorm leases in sql.js', { ...harness, lease: 6_000, concurrency: 4 });
