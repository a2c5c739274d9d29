import type { Connection, RowDataPacket } from 'mysql2';
import { type Connection as Admin, createConnection } from 'mysql2/promise';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import {
  SqlAdvisoryLockProvider,
  sqlClientOf,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { hasMySql, type SqlServer, startMySqlOrMariaDb } from '../servers/sql-server.mjs';
import { LockProcesses } from '../typeorm/lock-processes.js';
import { until } from '../until.js';

const BOTH = [
  '',
  'ANSI,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,PAD_CHAR_TO_FULL_LENGTH,ALLOW_INVALID_DATES,NO_DIR_IN_CREATE',
  'NO_BACKSLASH_ESCAPES,ANSI_QUOTES,NO_ZERO_DATE,NO_ZERO_IN_DATE',
  'STRICT_ALL_TABLES',
  'TRADITIONAL,ONLY_FULL_GROUP_BY,NO_AUTO_VALUE_ON_ZERO',
];
const OF_MARIADB = [
  'EMPTY_STRING_IS_NULL',
  'ORACLE',
  'ORACLE,EMPTY_STRING_IS_NULL',
  'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES,EMPTY_STRING_IS_NULL',
  'SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL,MSSQL,DB2,MAXDB,POSTGRESQL',
];

describe('locks of MySQL or MariaDB work the same in the sql_mode of the server', () => {
  const processes = new LockProcesses();
  let server: SqlServer;
  let admin: Admin;

  beforeAll(async () => {
    server = await startMySqlOrMariaDb();
    admin = await createConnection(server.url);
  }, 60_000);
  afterEach(() => processes.stop());
  afterAll(async () => {
    await admin.end();
    await server.stop();
  });

  it.each(hasMySql() ? BOTH : [...BOTH, ...OF_MARIADB])('"%s"', async (mode) => {
    await admin.query('SET GLOBAL sql_mode = ?', [mode]);
    await admin.query('DROP TABLE IF EXISTS distributed_lock');
    const options = { url: server.url, synchronize: true, commandTimeout: '10s' };
    const pairOf = (provider: () => LockProvider) =>
      Promise.all([processes.start(provider()), processes.start(provider())]);
    const versions = await pairOf(() => new SqlVersionLockProvider(options));
    const rows = await pairOf(() => new SqlRowLockProvider({ ...options, fencing: true }));
    const names = await pairOf(() => new SqlAdvisoryLockProvider({ ...options, fencing: true }));
    for (const [locks, others] of [versions, rows, names]) await excludes(locks, others);
    await limits(...versions);
    await listsAndPurges(versions[0]);
    await shares(...rows);
    await keepsModeOfApplication(rows[0]);
  });

  async function excludes(locks: LockManager, others: LockManager): Promise<void> {
    const first = await locks.acquire('a');
    expect(await others.tryAcquire('a')).toBeNull();
    const waiting = others.acquire('a');
    expect(await first.release()).toBe('released');
    const second = await waiting;
    expect(second.fencingToken).toBeGreaterThan(first.fencingToken!);
    expect(await second.release()).toBe('released');
  }

  async function limits(locks: LockManager, others: LockManager): Promise<void> {
    const terms = { limit: 2 };
    const held = [await locks.acquire('limited', terms), await others.acquire('limited', terms)];
    expect(await locks.tryAcquire('limited', terms)).toBeNull();
    expect(await held[0]!.release()).toBe('released');
    const again = await locks.acquire('limited', terms);
    await again.extend();
    expect(await again.release()).toBe('released');
    expect(await held[1]!.release()).toBe('released');
  }

  async function listsAndPurges(locks: LockManager): Promise<void> {
    const key = `it's "quoted" \\ é`;
    const lock = await locks.acquire(key);
    const listed: unknown[] = [];
    for await (const { key: each, fencingToken } of locks.admin.list()) listed.push([each, fencingToken]);
    expect(listed).toEqual([[key, lock.fencingToken]]);
    await admin.query(`UPDATE distributed_lock SET expires = 0 WHERE name LIKE 'test#lease:a'`);
    expect(await locks.admin.purge({ unusedFor: '10m' })).toBe(1);
    expect(await lock.release()).toBe('released');
  }

  async function shares(locks: LockManager, others: LockManager): Promise<void> {
    const readers = [await locks.acquire('a', { mode: 'shared' }), await others.acquire('a', { mode: 'shared' })];
    expect(await locks.tryAcquire('a')).toBeNull();
    for (const reader of readers) await reader.release();
    await until(async () => (await (await others.tryAcquire('a'))?.release()) === 'released', 'the readers have left');
  }

  /** Statements of the application run in its own mode, in which a backslash escapes, because mysql2 escapes by it. */
  async function keepsModeOfApplication(locks: LockManager): Promise<void> {
    const modesOf = async (client: Pick<Connection, 'promise'> | { promise: () => Admin }) => {
      const [[answer]] = await client.promise().query<RowDataPacket[]>('SELECT @@SESSION.sql_mode AS mode');
      return String(answer!['mode'])
        .split(',')
        .filter((each) => each !== 'NO_BACKSLASH_ESCAPES' && each !== '');
    };
    const own = await createConnection(server.url);
    const modes = await modesOf({ promise: () => own });
    await own.end();
    await using lock = await locks.acquire('mode');
    const client = sqlClientOf<Connection>(lock);
    expect(await modesOf(client)).toEqual(modes);
    const [[answer]] = await client.promise().query<RowDataPacket[]>('SELECT ? AS value', [`\\' OR 1`]);
    expect(answer).toEqual({ value: `\\' OR 1` });
  }
});
