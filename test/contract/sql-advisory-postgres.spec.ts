import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { advisoryLockHarness, SqlBackend } from '../typeorm/sql-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.forContract('postgres');
}, 60_000);
afterAll(() => backend.stop());

describeLockProvider(
  'advisory locks on Postgres',
  advisoryLockHarness('postgres', () => backend),
);
