import { afterAll, beforeAll } from '@jest/globals';
import { DataSource } from 'typeorm';
import { describeLockProvider } from '../../lib/testing/index.js';
import { sqliteHarness } from '../typeorm/version-backend.js';

const dataSource = new DataSource({ type: 'sqljs' });

beforeAll(async () => {
  await dataSource.initialize();
});
afterAll(() => dataSource.destroy());

console.warn('NOT RUN: the cases that cut a provider off. This database is in the process.');

describeLockProvider(
  'typeorm leases in sql.js',
  sqliteHarness(
    () => dataSource,
    () => dataSource,
  ),
);
