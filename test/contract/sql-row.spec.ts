import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { rowLockHarness, SqlBackend } from '../typeorm/sql-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.forContract('mariadb');
}, 60_000);
afterAll(() => backend.stop());

describeLockProvider(
  'row locks on MariaDB',
  rowLockHarness('mariadb', () => backend),
);
