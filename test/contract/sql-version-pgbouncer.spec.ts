import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { SqlBackend } from '../typeorm/sql-backend.js';
import { versionLockHarness } from '../typeorm/version-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.pooled();
}, 60_000);
afterAll(() => backend.stop());

describeLockProvider(
  'SQL leases on Postgres, behind PgBouncer in transaction mode',
  // The pooler uses one account of the server for all of its clients, so none of them can be refused alone.
  versionLockHarness(() => backend, false),
);
