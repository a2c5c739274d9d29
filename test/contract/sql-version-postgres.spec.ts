import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { SqlBackend } from '../typeorm/sql-backend.js';
import { versionLockHarness } from '../typeorm/version-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.forContract('postgres');
}, 60_000);
afterAll(() => backend.stop());

describeLockProvider(
  'version locks on Postgres',
  versionLockHarness(() => backend),
);
