import { readFile, writeFile } from 'node:fs/promises';
import mysql2 from 'mysql2';
import { type Connection, createConnection } from 'mysql2/promise';
import pg from 'pg';
import { DataSource, type DataSourceOptions } from 'typeorm';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { REFUSAL_RETRIED_FOR } from '../../lib/core/toolkit/retryable.js';
import { SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { installed } from '../servers/server-process.mjs';
import { type SqlServer, startMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { LockProcesses } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

const failureOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => 'done',
    (error: unknown) => error,
  );

/** The password of the account `app`, and how often it was requested. */
class Token {
  asked = 0;
  constructor(public text: string) {}

  readonly ask = (): string => {
    this.asked += 1;
    return this.text;
  };
}

/** A provider that reads the token in some way. */
type Way = (address: { host: string; port: number; database: string; user: string }, token: Token) => LockProvider;

const synchronize = true;
const urlOf = (scheme: string, { host, port, database, user }: Parameters<Way>[0], { ask }: Token) =>
  `${scheme}://${user}:${ask()}@${host}:${port}/${database}`;

/** A configuration class as applications write it. */
class Settings {
  readonly #address: Parameters<Way>[0];
  readonly #token: Token;

  constructor(address: Parameters<Way>[0], token: Token) {
    this.#address = address;
    this.#token = token;
  }
  get host(): string {
    return this.#address.host;
  }
  get port(): number {
    return this.#address.port;
  }
  get database(): string {
    return this.#address.database;
  }
  get user(): string {
    return this.#address.user;
  }
  get password(): string {
    return this.#token.ask();
  }
}

const onPostgres: Readonly<Record<string, Way>> = {
  'a function': (address, { ask }) =>
    new SqlVersionLockProvider({
      postgres: { ...address, password: () => new Promise((resolve) => setImmediate(() => resolve(ask()))) },
      synchronize,
    }),
  'a getter': (address, { ask }) => {
    const postgres = {
      ...address,
      get password() {
        return ask();
      },
    };
    return new SqlVersionLockProvider({ postgres, synchronize });
  },
  'a getter of a class': (address, token) =>
    new SqlVersionLockProvider({ postgres: new Settings(address, token), synchronize }),
  'an address that is a getter': (address, token) =>
    new SqlVersionLockProvider({
      get url() {
        return urlOf('postgres', address, token);
      },
      synchronize,
    }),
  'a function of a DataSource': ({ user: username, ...address }, { ask }) =>
    onDataSource({ type: 'postgres', ...address, username, password: async () => Promise.resolve(ask()) }),
  "a function of a DataSource's master": ({ user: username, ...address }, { ask }) =>
    onDataSource({
      type: 'postgres',
      replication: { master: { ...address, username, password: () => ask() }, slaves: [] },
    }),
};

const onMariaDb: Readonly<Record<string, Way>> = {
  'a getter': (address, { ask }) => {
    const mysql = {
      ...address,
      get password() {
        return ask();
      },
    };
    return new SqlVersionLockProvider({ mysql, synchronize });
  },
  'a getter of a class': (address, token) =>
    new SqlVersionLockProvider({ mysql: new Settings(address, token), synchronize }),
  "a getter of the driver's own configuration": (address, { ask }) => {
    const { connectionConfig: mysql } = mysql2.createPool(address).config as unknown as { connectionConfig: object };
    // The driver warns about these settings, although it created them itself.
    for (const name of ['maxPacketSize', 'clientFlags']) Reflect.deleteProperty(mysql, name);
    return new SqlVersionLockProvider({ mysql: Object.defineProperty(mysql, 'password', { get: ask }), synchronize });
  },
  'an address that is a getter': (address, token) =>
    new SqlVersionLockProvider({
      get url() {
        return urlOf('mysql', address, token);
      },
      synchronize,
    }),
  'a plugin that logs in': (address, { ask }) => {
    const authPlugins = {
      // The server requests this plugin first, and then the other one.
      client_ed25519: () => () => Buffer.alloc(64),
      mysql_native_password: (context: never) => mysql2.authPlugins.mysql_native_password({ password: ask() })(context),
    };
    return new SqlVersionLockProvider({ mysql: { ...address, authPlugins }, synchronize });
  },
  'a getter of a DataSource': ({ user: username, ...address }, { ask }) =>
    onDataSource({
      ...{ type: 'mariadb', ...address, username },
      get password() {
        return ask();
      },
    }),
  'a getter in "extra" of a DataSource': ({ user: username, ...address }, { ask }) =>
    onDataSource({
      ...{ type: 'mysql', ...address, username },
      extra: {
        get password() {
          return ask();
        },
      },
    }),
};

const onDataSource = (options: DataSourceOptions): LockProvider =>
  new TypeOrmVersionLockProvider({ dataSource: new DataSource(options), synchronize });

type Query = (token: string) => Promise<unknown>;

describe('a rotated password', () => {
  const processes = new LockProcesses();
  let tokens = 0;
  const nextToken = () => `token-${(tokens += 1)}`;

  /** Starts an application that has locked with the first token. */
  async function start(way: Way, { url }: SqlServer, rotate: Query) {
    const { hostname: host, port, pathname } = new URL(url);
    const token = new Token(nextToken());
    await rotate(token.text);
    const address = { host, port: Number(port), database: pathname.slice(1), user: 'app' };
    const locks = await processes.start(way(address, token));
    await locks.withLock('k', () => undefined);
    return { token, locks };
  }

  /** Rotates the token, ends all connections, and locks again. */
  async function locksAfter(way: Way, server: SqlServer, rotate: Query, end: () => Promise<unknown>): Promise<void> {
    const { token, locks } = await start(way, server, rotate);
    token.text = nextToken();
    await rotate(token.text);
    token.asked = 0;
    await end();
    expect(await locks.withLock('k', () => 'done')).toBe('done');
    expect(token.asked).toBeGreaterThan(0);
  }

  /** Rotates the token on the server only, ends all connections, and retries until the refusal is final. */
  async function refusedAfter(way: Way, server: SqlServer, rotate: Query, end: () => Promise<unknown>): Promise<void> {
    const { token, locks } = await start(way, server, rotate);
    // The caller gets the new token before the retries end, so it waits as in an outage.
    const next = nextToken();
    await rotate(next);
    await end();
    const first = await failureOf(locks.acquire('k', { wait: 0 }));
    expect(first).toBeInstanceOf(LockUnavailableError);
    expect(String(first)).toMatch(
      /rejected the login, which it previously accepted: .*Check the username and password/,
    );
    expect(String(first)).not.toContain('token-');
    const waiter = locks.withLock('k', () => 'done', { wait: '1m' });
    token.asked = 0;
    await until(() => token.asked > 0, 'the token is requested again');
    token.text = next;
    expect(await waiter).toBe('done');

    const last = nextToken();
    await rotate(last);
    await end();
    const began = performance.now();
    const error = await failureOf(locks.acquire('k', { wait: '10m' }));
    expect(error).toBeInstanceOf(LockConfigError);
    expect(error).toMatchObject({ refused: true, provider: 'sql', key: 'k' });
    expect(performance.now() - began).toBeGreaterThan(REFUSAL_RETRIED_FOR * 0.9);
    token.text = last;
    expect(await locks.withLock('k', () => 'done')).toBe('done');
  }

  describe('a password rotated on Postgres', () => {
    let server: SqlServer;
    let admin: pg.Client;

    beforeAll(async () => {
      server = await startPostgres();
      admin = new pg.Client(server.url);
      await admin.connect();
      await admin.query(`CREATE USER app; GRANT ALL ON SCHEMA public TO app`);
      // The tests' server trusts every client, and never requests a password.
      const { rows } = await admin.query<{ hba_file: string }>('SHOW hba_file');
      const rules = rows[0]?.hba_file ?? '';
      await writeFile(rules, `host all app 127.0.0.1/32 scram-sha-256\n${await readFile(rules, 'utf8')}`);
      await admin.query('SELECT pg_reload_conf()');
    }, 60_000);
    afterAll(async () => {
      await admin.end();
      await server.stop();
    });

    const rotate = (token: string) => admin.query(`ALTER USER app PASSWORD '${token}'`);
    const end = () => admin.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`);

    it.each(Object.entries(onPostgres))('is read at each connection from %s', (_, way) =>
      locksAfter(way, server, rotate, end),
    );

    it(
      'is an outage for 10 s while refused, then a refusal, and is accepted again at any time',
      () => refusedAfter(onPostgres['a getter']!, server, rotate, end),
      120_000,
    );
  });

  describe('a password rotated on MariaDB', () => {
    let server: SqlServer;
    let admin: Connection;

    beforeAll(async () => {
      server = await startMariaDb({ options: [`--plugin-dir=${installed('usr/lib/mysql/plugin')}`] });
      admin = await createConnection(server.url);
      await admin.query(`INSTALL SONAME 'auth_ed25519'`);
      await admin.query('CREATE USER app');
      await admin.query('GRANT ALL ON test.* TO app');
    }, 60_000);
    afterAll(async () => {
      await admin.end();
      await server.stop();
    });

    const rotateBeside = (other: string) => (token: string) =>
      admin.query(`ALTER USER app IDENTIFIED VIA ${other} mysql_native_password USING PASSWORD('${token}')`);
    const end = () => admin.query('KILL USER app');

    it.each(Object.entries(onMariaDb))('is read at each connection from %s', (name, way) =>
      locksAfter(way, server, rotateBeside(name.includes('plugin') ? `ed25519 USING PASSWORD('another') OR` : ''), end),
    );

    it(
      'is an outage for 10 s while refused, then a refusal, and is accepted again at any time',
      () => refusedAfter(onMariaDb['a getter']!, server, rotateBeside(''), end),
      120_000,
    );
  });
});
