import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { SqlBackend } from '../typeorm/sql-backend.js';
import { versionLockHarness, versionProvider } from '../typeorm/version-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.forContract('postgres');
}, 60_000);
afterAll(() => backend.stop());

describeLockProvider('version locks on Postgres, with a TypeORM DataSource', {
  ...versionLockHarness(() => backend),
  create: () => versionProvider(backend, { commandTimeout: '6s' }),
});
