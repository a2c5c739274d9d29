import { jest } from '@jest/globals';
import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import { textOf } from '../../lib/provider-kit/secrets.js';
import {
  type SqlConnectionOptions,
  SqlAdvisoryLockProvider,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { exposedBy, PASSWORDS, WORDS } from '../exposure.js';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';

/** A URL, no URL, with a query, and no scheme. */
const addressesOf = (protocol: string) =>
  PASSWORDS.flatMap((password) => [
    `${protocol}://user:${password}@127.0.0.1:1/test`,
    `${protocol}://user:${password}@[127.0.0.1:1/test`,
    `${protocol}://127.0.0.1:1/test?user=user&password=${password}`,
    `user:${password}@127.0.0.1`,
  ]);

/** Every place of the options that takes an address. */
const PLACES: readonly (readonly [string, string, (url: string) => SqlConnectionOptions])[] = [
  ['url of Postgres', 'postgres', (url) => ({ url })],
  ['url of MySQL', 'mysql', (url) => ({ url })],
  ['postgres.connectionString', 'postgres', (connectionString) => ({ postgres: { connectionString } })],
  ['postgres.host', 'postgres', (host) => ({ postgres: { host } })],
  ['mysql.uri', 'mysql', (uri) => ({ mysql: { uri } })],
  ['mysql.host', 'mysql', (host) => ({ mysql: { host } })],
];

it.each(PLACES)(
  'a password in an address is shown nowhere: %s',
  async (_, protocol, place) => {
    // mysql2 prints what it does not know of a query.
    const printed = jest.spyOn(console, 'error').mockReturnValue();
    const providers = addressesOf(protocol).map((address) => () => new SqlVersionLockProvider(place(address)));
    expect(await exposedBy(providers)).not.toMatch(WORDS);
    printed.mockRestore();
  },
  60_000,
);

it.each(['postgres', 'mysql'])(
  'a password of a DataSource is shown nowhere: %s',
  async (type) => {
    const providers = addressesOf(type).map((url) => () => {
      const options = { type, url, password: PASSWORDS[0] } as DataSourceOptions;
      return new TypeOrmRowLockProvider({ dataSource: new DataSource(options) });
    });
    expect(await exposedBy(providers)).not.toMatch(WORDS);
  },
  60_000,
);

describe.each(['mysql', 'postgres'])('statements that %s refuses', (database) => {
  let server: SqlServer;
  beforeAll(async () => {
    server = database === 'mysql' ? await startMySqlOrMariaDb() : await startPostgres();
  }, 60_000);
  afterAll(() => server.stop());

  it.each([SqlRowLockProvider, SqlVersionLockProvider, SqlAdvisoryLockProvider])(
    'show no id of a holder: %p',
    async (Provider) => {
      const seen: string[] = [];
      const see = (something: unknown) => {
        seen.push(textOf(something));
      };
      const logger = { debug: see, warn: see, error: see };
      const making = new LockManager({
        providers: { main: new SqlVersionLockProvider({ url: server.url, synchronize: true }) },
      });
      await making.start();
      await making.stop();
      // With synchronize it would create the table again.
      const provider = new Provider({ url: server.url, fencing: true });
      const locks = new LockManager({ providers: { main: provider }, logger, shutdownGrace: 0 });
      for (const event of ['unavailable', 'lost', 'release-pending'] as const) locks.events.on(event, see);
      await locks.start();
      const locked = await locks.acquire('order');
      await dropTables(server.url);
      await locks.acquire('other', { wait: 0 }).then(see, see);
      await locked.extend().then(see, see);
      await locked.release().then(see);
      await locks.acquire('order', { wait: 0 }).then(see, see);
      await locks.stop();
      const text = seen.join('\n');
      expect(text).toMatch(/doesn't exist|does not exist/);
      expect(text).not.toMatch(/(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])/);
      expect(text).not.toContain(locked.holder.slice(12));
      expect(text).not.toMatch(/\bsql:|\bquery:|\bparameters:/);
    },
  );
});

/** All tables of the locks, under a lock that is held where the server allows it. */
async function dropTables(url: string): Promise<void> {
  const drop = 'DROP TABLE IF EXISTS distributed_lock';
  if (url.startsWith('postgres')) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    // The row lock has the table open.
    await client.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state LIKE 'idle in%'",
    );
    await client.query(drop);
    await client.end();
    return;
  }
  const connection = await createConnection(url.replace(/^mariadb/, 'mysql'));
  await connection.query('SET lock_wait_timeout = 1');
  await connection.query(drop).catch(async () => {
    const [rows] = await connection.query('SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx');
    for (const { id } of rows as { id: number }[]) await connection.query(`KILL ${id}`);
    await connection.query(drop);
  });
  await connection.end();
}
