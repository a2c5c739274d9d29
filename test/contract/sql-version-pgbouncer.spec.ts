import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { SqlBackend } from '../typeorm/sql-backend.js';
import { versionLockHarness } from '../typeorm/version-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.pooled();
}, 60_000);
afterAll(() => backend.stop());

describeLockProvider(
  'version locks on Postgres, behind PgBouncer in transaction mode',
  // PgBouncer uses one server account for all clients, so no single client can be refused.
  versionLockHarness(() => backend, false),
);
