import { DataSource, type DataSourceOptions } from 'typeorm';
import { mysqlDialect, ownMysqlPool } from '../../lib/providers/typeorm/mysql-dialect.js';
import { ownPostgresPool, postgresDialect } from '../../lib/providers/typeorm/postgres-dialect.js';
import { readOptions } from '../../lib/providers/typeorm/row/row-lock-options.js';
import { LockConfigError } from '../../lib/lock/errors.js';

const dataSource = new DataSource({ type: 'mysql', host: 'nowhere' });

describe('options of the row lock', () => {
  it('have defaults', () => {
    expect(readOptions({ dataSource })).toMatchObject({
      database: 'mysql',
      table: 'distributed_lock',
      synchronize: false,
      fencing: false,
      terms: { guard: 30_000, patience: 2_000, maxConnections: 10 },
    });
  });

  it.each([
    [{ table: 'a; DROP TABLE b' }],
    [{ table: 'a.b.c' }],
    [{ table: '' }],
    [{ sessionGuard: '500ms' }],
    [{ statementTimeout: 0 }],
    [{ maxConnections: 0 }],
    [{ maxConnections: 1.5 }],
    [{ dataSource: new DataSource({ type: 'sqljs' }) }],
  ])('%j is refused', (options) => {
    expect(() => readOptions({ dataSource, ...options })).toThrow(LockConfigError);
  });

  it('the pool is made on the writer, in its own size', () => {
    const replicated = (type: 'mysql' | 'postgres') =>
      ({ type, extra: { a: 1 }, replication: { master: { host: 'writer' }, slaves: [] } }) as DataSourceOptions;
    expect(ownMysqlPool(replicated('mysql'), 7, 300)).toEqual({
      ...{ type: 'mysql', host: 'writer', connectTimeout: 300, extra: { a: 1, connectionLimit: 7 } },
    });
    expect(ownPostgresPool(replicated('postgres'), 7, 300)).toEqual({
      ...{ type: 'postgres', host: 'writer', connectTimeoutMS: 300, extra: { a: 1, max: 7 } },
    });
  });
});

describe('dialects', () => {
  it('MySQL and MariaDB spell a shared lock differently', () => {
    expect(mysqlDialect('s.locks', '8.0.36').tryLock('shared')).toBe(
      'SELECT 1 FROM `s`.`locks` WHERE name = ? FOR SHARE SKIP LOCKED',
    );
    expect(mysqlDialect('locks', '10.11.6-MariaDB').tryLock('shared')).toBe(
      'SELECT 1 FROM `locks` WHERE name = ? LOCK IN SHARE MODE SKIP LOCKED',
    );
  });

  it.each([
    [{ errno: 1205 }, 'busy'],
    [{ errno: 3572 }, 'busy'],
    [{ errno: 1969 }, 'busy'],
    [{ errno: 1213 }, 'rolled-back'],
    [{ errno: 1020 }, 'rolled-back'],
    [{ errno: 1146 }, 'no-table'],
    [{ code: 'ECONNRESET' }, 'other'],
  ])('MySQL: %j is %s', (driverError, failure) => {
    expect(mysqlDialect('locks', '').classify(Object.assign(new Error(), { driverError }))).toBe(failure);
  });

  it.each([
    ['55P03', 'busy'],
    ['57014', 'busy'],
    ['40P01', 'rolled-back'],
    ['40001', 'rolled-back'],
    ['42P01', 'no-table'],
    ['57P01', 'other'],
  ])('Postgres: %s is %s', (code, failure) => {
    expect(postgresDialect('locks').classify(Object.assign(new Error(), { code }))).toBe(failure);
  });

  it('the doctor finds clusters with several writers, replicas and poolers', async () => {
    const variables = { wsrep_on: 'ON', read_only: 'ON', group_replication_single_primary_mode: 'OFF' };
    const rows = Object.entries(variables).map(([Variable_name, Value]) => ({ Variable_name, Value }));
    const mysql = await mysqlDialect('locks', '').examine(() => Promise.resolve(rows));
    expect(mysql.map(({ severity }) => severity)).toEqual(['error', 'error', 'error']);
    let id = 0;
    const postgres = await postgresDialect('locks').examine(() => Promise.resolve([{ standby: true, id: id++ }]));
    expect(postgres.map(({ severity }) => severity)).toEqual(['error', 'error']);
  });
});
