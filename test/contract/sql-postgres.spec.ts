import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { advisoryLockHarness, rowLockHarness, SqlBackend } from '../typeorm/sql-backend.js';
import { versionLockHarness } from '../typeorm/version-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.forContract('postgres');
}, 60_000);
afterAll(() => backend.stop());

const started = () => backend;
describeLockProvider('row locks on Postgres', rowLockHarness('postgres', started));
describeLockProvider('version locks on Postgres', versionLockHarness(started));
describeLockProvider('advisory locks on Postgres', advisoryLockHarness('postgres', started));
