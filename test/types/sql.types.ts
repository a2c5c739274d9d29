// Compiled by `npm run typecheck`, never run.
import type { ClientConfig, PoolClient } from 'pg';
import type { ConnectionOptions } from 'mysql2';
import type { Lock } from '../../lib/index.js';
import {
  sqlClientOf,
  SqlAdvisoryLockProvider,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';

declare const postgres: ClientConfig;
declare const mysql: ConnectionOptions;
declare const lock: Lock;

new SqlRowLockProvider({ url: 'postgres://localhost/app', nestedConnections: 2 });
new SqlVersionLockProvider({ postgres });
new SqlAdvisoryLockProvider({ mysql, fencing: true });
new SqlVersionLockProvider({ postgres: { host: 'db', statement_timeout: 5 } });
// @ts-expect-error: no server
new SqlRowLockProvider({ table: 'locks' });
// @ts-expect-error: two servers
new SqlRowLockProvider({ url: 'postgres://localhost/app', mysql });
// @ts-expect-error: an option of the row lock
new SqlVersionLockProvider({ url: 'postgres://localhost/app', nestedConnections: 2 });
// @ts-expect-error: no duration
new SqlVersionLockProvider({ url: 'postgres://localhost/app', maxConnections: true });

const client: PoolClient = sqlClientOf<PoolClient>(lock);
void client;
