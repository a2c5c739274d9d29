import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { advisoryLockHarness, SqlBackend } from '../typeorm/sql-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.forContract('mariadb');
}, 60_000);
afterAll(() => backend.stop());

describeLockProvider(
  'GET_LOCK on MariaDB',
  advisoryLockHarness('mariadb', () => backend),
);
