import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { lockTablesSql, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { SqlBackend, type SqlType } from '../typeorm/sql-backend.js';

const backends = new Map<SqlType, SqlBackend>();
beforeAll(async () => {
  for (const type of ['mariadb', 'postgres'] as const) backends.set(type, await SqlBackend.start(type));
}, 60_000);
afterAll(async () => {
  for (const backend of backends.values()) await backend.stop();
});

it.each([
  ['mysql', 'mariadb'],
  ['postgres', 'postgres'],
] as const)('makes what a provider for %s needs without synchronize', async (database, type) => {
  const { admin, server } = backends.get(type)!;
  for (const statement of lockTablesSql(database, { table: 'own' })) await admin.query(statement);
  const locks = new LockManager({ providers: { sql: new SqlVersionLockProvider({ url: server.url, table: 'own' }) } });
  await locks.start();
  expect(await (await locks.acquire('a')).release()).toBe('released');
  await locks.stop();
});

it('a table that lacks a column is refused at the start, and the message names the column', async () => {
  const { admin, server } = backends.get('postgres')!;
  await admin.query('CREATE TABLE old (name varchar(255) PRIMARY KEY, token bigint, holder text, expires bigint)');
  const provider = new SqlVersionLockProvider({ url: server.url, table: 'old', synchronize: true });
  const refused = await new LockManager({ providers: { sql: provider } }).start().catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(LockConfigError);
  expect(String(refused)).toMatch(/label/);
});

it.each([
  ['oracle', {}, /mysql \(also for MariaDB\) or postgres/],
  [undefined, {}, /mysql/],
  ['postgres', { table: 'a; DROP TABLE b' }, /letters, digits/],
  ['sqlite', {}, /MariaDB\) or postgres/],
])('refuses %p with %j', (database, options, message) => {
  expect(() => lockTablesSql(database as 'mysql', options)).toThrow(LockConfigError);
  expect(() => lockTablesSql(database as 'mysql', options)).toThrow(message);
});
