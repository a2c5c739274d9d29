import { type Connection, createPool } from 'mysql2';
import pg, { type PoolClient } from 'pg';
import { DataSource } from 'typeorm';
import { LockConfigError } from '../../lib/api/errors.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import {
  SqlAdvisoryLockProvider,
  sqlClientOf,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { contextFor } from '../backend-context.js';
import { type SqlServer, startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { LockProcesses } from '../typeorm/sql-backend.js';

const processes = new LockProcesses();

type Settings = Readonly<Record<string, unknown>>;

/** Returns the connection settings that a driver needs to reach the server. */
function addressOf({ url }: SqlServer): Settings {
  const { hostname, port, username, pathname } = new URL(url);
  return { host: hostname, port: Number(port), user: username, database: pathname.slice(1) };
}

/** Checks locks of every kind on connections with these settings, alongside a process without them. */
async function locksWork(name: 'mysql' | 'postgres', plain: Settings, settings: Settings): Promise<LockManager> {
  const options = { synchronize: true, fencing: true, commandTimeout: '10s' } as const;
  const own = { ...options, [name]: { ...plain, ...settings } } as never;
  const other = { ...options, [name]: plain } as never;
  let rows: LockManager | undefined;
  for (const Provider of [SqlVersionLockProvider, SqlAdvisoryLockProvider, SqlRowLockProvider]) {
    const locks = await processes.start(new Provider(own));
    const others = await processes.start(new Provider(other));
    const before = await others.acquire('a');
    expect(await locks.tryAcquire('a')).toBeNull();
    await before.release();
    const lock = await locks.acquire('a');
    expect(lock.fencingToken).toBeGreaterThan(before.fencingToken!);
    expect(await others.tryAcquire('a')).toBeNull();
    await lock.extend();
    expect(await lock.release()).toBe('released');
    expect(await (await others.acquire('a')).release()).toBe('released');
    if (Provider === SqlRowLockProvider) rows = locks;
    if (Provider !== SqlVersionLockProvider) continue;
    const terms = { limit: 2 };
    const limited = [await locks.acquire('l', terms), await others.acquire('l', terms)];
    expect(await locks.tryAcquire('l', terms)).toBeNull();
    const listed: unknown[] = [];
    for await (const { key, holders } of locks.admin.list()) listed.push([key, holders]);
    expect(listed).toEqual([['l', 2]]);
    for (const each of limited) expect(await each.release()).toBe('released');
  }
  const backend = new SqlVersionLockProvider(own).createBackend(contextFor());
  const record = `é "${JSON.stringify(settings)}" \\`;
  expect(await backend.casStore!.compareAndSet(record, null, record)).toBe(record);
  expect(await backend.casStore!.compareAndSet(record, null, 'other')).toBe(record);
  expect(await backend.casStore!.compareAndSet(record, record, 'next')).toBe('next');
  await backend.close();
  return rows!;
}

async function typeOrmLocksWork(type: 'mysql' | 'postgres', { url }: SqlServer, extra: Settings): Promise<void> {
  const dataSource = new DataSource({ type, url: url.replace(/^mariadb/, 'mysql'), extra });
  const locks = await processes.start(new TypeOrmVersionLockProvider({ dataSource, synchronize: true }));
  const lock = await locks.acquire('a');
  expect(await locks.admin.inspect('a')).toMatchObject({ fencingToken: lock.fencingToken });
  expect(await lock.release()).toBe('released');
}

describe('mysql2 options', () => {
  let server: SqlServer;
  beforeAll(async () => {
    server = await startMySqlOrMariaDb();
  }, 60_000);
  afterAll(() => server.stop());

  const asText = (field: { string(): string }) => `<${field.string()}>`;
  const BIG = 7_000_000_000;
  const LENT: readonly (readonly [Settings, unknown])[] = [
    [{ rowsAsArray: true }, [BIG]],
    [{ nestTables: '' }, { tn: BIG }],
    [{ nestTables: true }, { t: { n: BIG } }],
    [{ nestTables: '_' }, { t_n: BIG }],
    [{ typeCast: false }, { n: Buffer.from(String(BIG)) }],
    [{ typeCast: asText }, { n: `<${BIG}>` }],
    [{ disableEval: true, typeCast: asText, rowsAsArray: true }, [`<${BIG}>`]],
    [{ supportBigNumbers: true, bigNumberStrings: true, decimalNumbers: true, dateStrings: true }, { n: String(BIG) }],
    [{ stringifyObjects: true, multipleStatements: true, compress: true }, { n: BIG }],
    [{ charset: 'BINARY', flags: '-FOUND_ROWS' }, { n: BIG }],
  ];
  it.each(LENT)(
    '%j changes no version, row or advisory lock, and applies to application statements: %j',
    async (settings, expected) => {
      const locks = await locksWork('mysql', addressOf(server), settings);
      await using lock = await locks.acquire('lent');
      const client = sqlClientOf<Connection>(lock).promise();
      const [[row]] = (await client.query(`SELECT n FROM (SELECT ${BIG} AS n) AS t`)) as [unknown[], unknown];
      expect(row).toEqual(expected);
    },
  );

  it('with -FOUND_ROWS, a limited lease is not reported as lost by a renewal that keeps a later end', async () => {
    const mysql = { ...addressOf(server), flags: '-FOUND_ROWS' };
    const locks = await processes.start(new SqlVersionLockProvider({ mysql, synchronize: true }));
    const lock = await locks.acquire('kept', { limit: 2, lease: '1h' });
    await lock.extend('1m');
    expect(lock.isHeld()).toBe(true);
    expect(await lock.release()).toBe('released');
  });

  it('namedPlaceholders changes no version, row or advisory lock, and applies to application statements', async () => {
    const locks = await locksWork('mysql', addressOf(server), { namedPlaceholders: true });
    await using lock = await locks.acquire('lent');
    const client = sqlClientOf<Connection>(lock).promise();
    const [rows] = await client.query('SELECT :n AS n', { n: 7 });
    expect(rows).toEqual([{ n: 7 }]);
  });

  it('runs a statement whose text is a class getter on the connection of a lock', async () => {
    const locks = await processes.start(new SqlRowLockProvider({ mysql: addressOf(server), synchronize: true }));
    await using lock = await locks.acquire('lent');
    const client = sqlClientOf<Connection>(lock).promise();
    const [rows] = await client.query(new Statement() as never);
    expect(rows).toEqual([[7]]);
  });

  it('options in "extra" of a DataSource change no lock', async () => {
    await typeOrmLocksWork('mysql', server, { nestTables: true, rowsAsArray: true, typeCast: false });
  });

  it('queryFormat is rejected by name, also in a DataSource', async () => {
    const queryFormat = (sql: string) => sql;
    const dataSource = new DataSource({
      type: 'mysql',
      url: server.url.replace(/^mariadb/, 'mysql'),
      extra: { queryFormat },
    });
    for (const provider of [
      new SqlRowLockProvider({ mysql: { ...addressOf(server), queryFormat } }),
      new TypeOrmVersionLockProvider({ dataSource }),
    ]) {
      const start = processes.start(provider);
      await expect(start).rejects.toBeInstanceOf(LockConfigError);
      await expect(start).rejects.toThrow(/"queryFormat"/);
    }
  });
});

describe('pg options on Postgres', () => {
  let server: SqlServer;
  beforeAll(async () => {
    server = await startPostgres();
  }, 60_000);
  afterAll(() => server.stop());

  const types = { getTypeParser: () => (value: string | Buffer) => ({ wrapped: value.toString() }) };
  const BINARY = { binary: true, types: { getTypeParser: (_: number, format: string) => () => format } };
  const LENT: readonly (readonly [Settings, unknown])[] = [
    [{ types }, { n: { wrapped: '7' } }],
    [{ binary: true }, { n: 7 }],
    [BINARY, { n: 'binary' }],
    [{ options: '-c quote_all_identifiers=on' }, { n: 7 }],
  ];
  it.each(LENT)(
    '%j changes no version, row or advisory lock, and applies to application statements: %j',
    async (settings, expected) => {
      const locks = await locksWork('postgres', addressOf(server), settings);
      await using lock = await locks.acquire('lent');
      const client = sqlClientOf<PoolClient>(lock);
      const statements = [
        ['SELECT $1::int AS n', [7]],
        [{ text: 'SELECT $1::int AS n', values: [7] }],
        [new Statement()],
      ];
      for (const statement of statements) {
        const { rows } = await (client.query as (...statement: unknown[]) => Promise<pg.QueryResult>)(...statement);
        expect(rows).toEqual([expected]);
      }
    },
  );

  it('options in "extra" of a DataSource change no lock', async () => {
    await typeOrmLocksWork('postgres', server, BINARY);
  });

  it('global parsers and defaults change no version, row or advisory lock', async () => {
    const { getTypeParser } = pg.types;
    const numbers = [16, 17, 19, 20, 21, 23, 25, 26, 700, 701, 869, 1043, 1184, 1700] as const;
    const before = numbers.map((type) => getTypeParser(type as never) as (value: string) => unknown);
    const { defaults } = pg;
    try {
      for (const type of numbers) pg.types.setTypeParser(type as never, (value: string) => ({ wrapped: value }));
      Object.assign(defaults, { binary: true, parseInputDatesAsUTC: true });
      const locks = await locksWork('postgres', addressOf(server), {});
      await using lock = await locks.acquire('lent');
      const { rows } = await sqlClientOf<PoolClient>(lock).query('SELECT $1::int AS n', [7]);
      expect(rows).toEqual([{ n: 7 }]);
    } finally {
      numbers.forEach((type, index) => {
        pg.types.setTypeParser(type as never, before[index]!);
      });
      Object.assign(defaults, { binary: false, parseInputDatesAsUTC: false });
    }
  });
});

/** A statement as SQL template libraries build them. */
class Statement {
  readonly rowsAsArray = true;
  get sql(): string {
    return 'SELECT ? AS n';
  }
  get values(): unknown[] {
    return [7];
  }
  get text(): string {
    return 'SELECT $1::int AS n';
  }
}

describe.each([SqlRowLockProvider, SqlVersionLockProvider, SqlAdvisoryLockProvider])('%p', (Provider) => {
  const make = (options: unknown) => () => new Provider(options as never);

  it.each([
    [undefined],
    [null],
    [{}],
    [{ url: 'postgres://h/d', postgres: {} }],
    [{ postgres: {}, mysql: {} }],
    [{ dataSource: {} }],
  ])('requires exactly one server: %j', (options) => {
    expect(make(options)).toThrow(LockConfigError);
    expect(make(options)).toThrow(/exactly one of "url", "postgres" and "mysql"/);
  });

  it.each(['redis://u:secret@h/d', 'postgres', '', 5, 'http://u:secret@h'])(
    'lists the valid schemes of "url" without printing the address, which may contain a password: %p',
    (url) => {
      expect(make({ url })).toThrow(/must begin with postgres:\/\//);
      expect(make({ url })).not.toThrow(/secret/);
    },
  );

  it("rejects the application's pools, whose waiters would block it", async () => {
    const [postgres, mysql] = [new pg.Pool(), createPool({})];
    for (const options of [{ postgres }, { mysql }]) expect(make(options)).toThrow(/not a pool or a connection/);
    await postgres.end();
    mysql.end();
  });
});
