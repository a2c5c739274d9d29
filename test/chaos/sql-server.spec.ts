import { setTimeout as sleep } from 'node:timers/promises';
import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import type { DataSource } from 'typeorm';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { SqlBackend, type SqlType } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

// Plain JavaScript without types, like the programs.
const SQL_SERVER: string = '../../chaos/subjects/sql-server.mjs';
const RANDOM: string = '../../chaos/random.mjs';

type Row = Readonly<Record<string, unknown>>;
interface Random {
  chance(probability: number): boolean;
}
interface SqlServer {
  readonly port: number;
  readonly addresses: readonly string[];
  readonly conditions?: Readonly<Record<string, string>>;
  withConnection<T>(task: (admin: { query(sql: string): Promise<readonly Row[]> }) => Promise<T>): Promise<T>;
  sessionsOf(ports: readonly number[]): Promise<number>;
  advisoryLocks(): Promise<readonly string[]>;
  cancelStatements(random: Random, times: number, moment: () => Promise<boolean>): Promise<void>;
  crash(): Promise<void>;
  stop(): Promise<void>;
}

/** A client session whose socket the test can end abruptly, like the end of its process. */
interface Client {
  query(sql: string): Promise<unknown>;
  die(): void;
}

async function start(type: string): Promise<SqlServer> {
  const { startSql } = (await import(SQL_SERVER)) as { startSql(type: string, random: Random): Promise<SqlServer> };
  const { seededRandom } = (await import(RANDOM)) as { seededRandom(seed: string): Random };
  return startSql(type, seededRandom('7'));
}

const DATABASES = {
  mariadb: {
    async connect(port: number): Promise<Client> {
      const connection = await createConnection({ host: '127.0.0.1', port, user: 'root', database: 'test' });
      connection.on('error', () => undefined);
      return {
        query: (sql) => connection.query(sql),
        die: () => {
          connection.destroy();
        },
      };
    },
    // GET_LOCK checks its socket while it waits, so this waits for a row instead.
    hold: [
      'CREATE TABLE held (id int PRIMARY KEY)',
      'INSERT INTO held VALUES (1)',
      'START TRANSACTION',
      'SELECT id FROM held FOR UPDATE',
    ],
    wait: 'SELECT id FROM held FOR UPDATE',
    isWaiting: `SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'`,
    free: 'ROLLBACK',
    lock: `SELECT GET_LOCK('remains', 0)`,
    unlock: `SELECT RELEASE_LOCK('remains')`,
    named: 'advisory lock remains',
    run: 'SELECT SLEEP(60)',
    isRunning: `SELECT 1 FROM information_schema.processlist WHERE info = 'SELECT SLEEP(60)'`,
  },
  postgres: {
    async connect(port: number): Promise<Client> {
      const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres' });
      client.on('error', () => undefined);
      await client.connect();
      return {
        query: (sql) => client.query(sql),
        die: () => {
          (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
        },
      };
    },
    hold: ['SELECT pg_advisory_lock(1)'],
    wait: 'SELECT pg_advisory_lock(1)',
    isWaiting: `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'`,
    free: 'SELECT pg_advisory_unlock(1)',
    lock: 'SELECT pg_advisory_lock(7)',
    unlock: 'SELECT pg_advisory_unlock(7)',
    named: 'advisory lock 0 7',
    run: 'SELECT pg_sleep(60)',
    isRunning: `SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(60)'`,
  },
};

describe.each(['mariadb', 'postgres'] as const)('SQL server of a run: %s', (type) => {
  const database = DATABASES[type];
  const clients: Client[] = [];
  let server: SqlServer;
  let proxy: TcpProxy;

  beforeAll(async () => {
    server = await start(type);
    proxy = await startTcpProxy(server.port, { host: server.addresses });
  }, 60_000);
  afterAll(async () => {
    for (const client of clients) client.die();
    await proxy.close();
    await server.stop();
  });

  async function connect(): Promise<Client> {
    const client = await database.connect(proxy.port);
    clients.push(client);
    return client;
  }
  const seen = async (sql: string) => (await server.withConnection((admin) => admin.query(sql))).length > 0;

  it('counts the session of a dead client while the server still waits for a lock on its behalf', async () => {
    const holder = await connect();
    for (const sql of database.hold) await holder.query(sql);
    const others = proxy.clientPorts;
    const waiter = await connect();
    const ports = proxy.clientPorts.filter((port) => !others.includes(port));
    expect(ports).toHaveLength(1);
    waiter.query(database.wait).catch(() => undefined);
    await until(() => seen(database.isWaiting), 'the client waits');
    waiter.die();
    await until(() => proxy.clientPorts.length === others.length, 'its socket is closed');
    expect(await server.sessionsOf(ports)).toBe(1);
    await holder.query(database.free);
    await until(async () => (await server.sessionsOf(ports)) === 0, 'the session has ended');
    expect(await server.sessionsOf([])).toBe(0);
  });

  it('lists an advisory lock for as long as a session holds it', async () => {
    const holder = await connect();
    await holder.query(database.lock);
    expect(await server.advisoryLocks()).toEqual([database.named]);
    await holder.query(database.unlock);
    expect(await server.advisoryLocks()).toEqual([]);
  });

  it('cancels the current statement of a session, and keeps the session', async () => {
    const client = await connect();
    // SLEEP returns 1 instead of failing.
    const ended = client.query(database.run).catch(() => undefined);
    await server.cancelStatements({ chance: () => true }, 1, async () => {
      await until(() => seen(database.isRunning), 'the statement runs');
      return true;
    });
    await ended;
    await client.query('SELECT 1');
  });

  it('listens on its addresses, and connections use them in turn', async () => {
    const wires = await Promise.all(server.addresses.map((host) => startTcpProxy(server.port, { host })));
    for (const wire of wires) {
      const client = await database.connect(wire.port);
      await client.query('SELECT 1');
      client.die();
      await wire.close();
    }
    if (type !== 'postgres') return;
    const addresses = new Set<unknown>();
    for (const client of [await connect(), await connect()]) {
      const { rows } = (await client.query('SELECT host(inet_server_addr()) AS address')) as { rows: Row[] };
      addresses.add(rows[0]?.['address']);
    }
    expect([...addresses].sort()).toEqual(server.addresses);
  });
});

it('chooses the sql_mode of a server by the seed, and preserves it across a crash', async () => {
  const servers = await Promise.all([start('mariadb'), start('mariadb')]);
  const modeOf = async ({ withConnection }: SqlServer) =>
    (await withConnection((admin) => admin.query('SELECT @@GLOBAL.sql_mode AS mode')))[0]?.['mode'];
  try {
    const [{ conditions }, other] = servers;
    expect(conditions?.['sql_mode']).toMatch(/^[A-Z_0-9]+(,[A-Z_0-9]+)+$/);
    expect(other.conditions).toEqual(conditions);
    expect(await modeOf(other)).toBe(conditions?.['sql_mode']);
    await other.crash();
    expect(await modeOf(other)).toBe(conditions?.['sql_mode']);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}, 60_000);

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

// The chaos fault "server paused" also requires the processes that serve open connections to stop.
describe.each(databases)('a stopped server: %s', (type) => {
  let backend: SqlBackend;

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterAll(() => backend.stop());

  it('does not respond on an open connection until it continues', async () => {
    const connection = backend.admin.createQueryRunner();
    const query = () => connection.query('SELECT 1 AS one').then(() => 'response');
    expect(await query()).toBe('response');
    backend.server.signal('SIGSTOP');
    try {
      let response: Promise<string> | undefined;
      // On a busy machine, a signal takes a moment to reach all threads, and a response may be late.
      await until(async () => {
        response = query();
        return (await Promise.race([response, sleep(500, 'silence')])) === 'silence';
      }, 'the server does not respond');
      backend.server.signal('SIGCONT');
      expect(await response).toBe('response');
    } finally {
      backend.server.signal('SIGCONT');
      await connection.release();
    }
  });
});

const SQL_PAIR: string = '../../chaos/subjects/sql-pair.mjs';

interface SqlPair {
  readonly port: number;
  withConnection<T>(task: (admin: DataSource) => Promise<T>): Promise<T>;
  makeReadOnly(): Promise<void>;
  promote(): Promise<void>;
  cutOffReplica(): void;
  killWriter(): Promise<void>;
  replaceOld(): Promise<void>;
  stop(): Promise<void>;
}

describe.each(['mariadb', 'postgres'] as const)('a writer with a replica: %s', (type) => {
  let pair: SqlPair;
  const sources: DataSource[] = [];

  beforeAll(async () => {
    const { startSqlPair } = (await import(SQL_PAIR)) as { startSqlPair(type: string): Promise<SqlPair> };
    pair = await startSqlPair(type);
    await pair.withConnection((admin) => admin.query('CREATE TABLE written (id int)'));
  }, 60_000);
  afterAll(async () => {
    await Promise.all(sources.filter((source) => source.isInitialized).map((source) => source.destroy()));
    await pair.stop();
  });

  /** A connection with the account that the locks use. */
  async function connect(): Promise<DataSource> {
    const { dataSource, LIMITED_ACCOUNT } = (await import(SQL_SERVER)) as {
      dataSource(type: string, port: number, account: object): DataSource;
      LIMITED_ACCOUNT: object;
    };
    const source = await dataSource(type, pair.port, type === 'mariadb' ? LIMITED_ACCOUNT : {}).initialize();
    source.setOptions({ ...(type === 'postgres' && { poolErrorHandler: () => undefined }) });
    sources.push(source);
    return source;
  }
  const write = (source: DataSource, id: number) => source.query(`INSERT INTO written VALUES (${id})`);
  const written = async () => {
    const rows = await pair.withConnection<{ id: number }[]>((admin) =>
      admin.query('SELECT id FROM written ORDER BY id'),
    );
    return rows.map(({ id }) => id);
  };

  it.each([1, 2, 3])(
    'loses no row in a switchover, and keeps the connections of the old writer: switchover %i',
    async (round) => {
      const client = await connect();
      await write(client, round);
      const old = pair.port;
      await pair.makeReadOnly();
      await expect(write(client, 99)).rejects.toThrow(/read.only/);
      await pair.promote();
      expect(pair.port).not.toBe(old);
      await expect(client.query('SELECT 1')).resolves.toHaveLength(1);
      await expect(write(client, 99)).rejects.toThrow(/read.only/);
      expect(await written()).toEqual([1, 2, 3].slice(0, round));
      await pair.replaceOld();
      await write(await connect(), 10 * round);
      await pair.withConnection((admin) => admin.query('DELETE FROM written WHERE id >= 10'));
    },
    60_000,
  );

  if (type === 'mariadb') return;

  it('does not acknowledge or replicate a commit while the standby is cut off', async () => {
    pair.cutOffReplica();
    const client = await connect();
    let isAcknowledged = false;
    const writing = write(client, 4).then(
      () => {
        isAcknowledged = true;
      },
      () => undefined,
    );
    const waits = `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`;
    await until(
      () => pair.withConnection(async (admin) => (await admin.query<object[]>(waits)).length > 0),
      'the COMMIT waits for the standby',
    );
    expect(isAcknowledged).toBe(false);
    await pair.killWriter();
    await writing;
    expect(isAcknowledged).toBe(false);
    await pair.promote();
    expect(await written()).toEqual([1, 2, 3]);
    await pair.replaceOld();
  }, 60_000);
});
