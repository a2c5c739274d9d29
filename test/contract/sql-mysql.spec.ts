import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { advisoryLockHarness, rowLockHarness, SqlBackend } from '../typeorm/sql-backend.js';
import { versionLockHarness } from '../typeorm/version-backend.js';

let backend: SqlBackend;

beforeAll(async () => {
  backend = await SqlBackend.forContract('mariadb');
}, 60_000);
afterAll(() => backend.stop());

const started = () => backend;
describeLockProvider('row locks on MariaDB', rowLockHarness('mariadb', started));
describeLockProvider('version locks on MariaDB', versionLockHarness(started));
describeLockProvider('GET_LOCK on MariaDB', advisoryLockHarness('mariadb', started));
