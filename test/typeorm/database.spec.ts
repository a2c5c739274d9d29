import { DataSource, type DataSourceOptions } from 'typeorm';
import { mysqlDialect, ownMysqlPool } from '../../lib/providers/typeorm/mysql-dialect.js';
import { ownPostgresPool, postgresDialect } from '../../lib/providers/typeorm/postgres-dialect.js';
import { readOptions as read, type TypeOrmSessionLockOptions } from '../../lib/providers/typeorm/database-options.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { LockConfigError } from '../../lib/lock/errors.js';

const dataSource = new DataSource({ type: 'mysql', host: 'nowhere' });
const readOptions = (options: TypeOrmSessionLockOptions) => read('TypeOrmRowLockProvider', options, 2);

describe('options of locks that live as long as a connection', () => {
  it('have defaults', () => {
    expect(readOptions({ dataSource })).toMatchObject({
      database: 'mysql',
      table: 'distributed_lock',
      synchronize: false,
      fencing: false,
      allowUnsafeTopology: false,
      terms: { guard: 30_000, patience: 2_000, maxConnections: 10 },
    });
  });

  it.each([
    [{ table: 'a; DROP TABLE b' }],
    [{ table: 'a.b.c' }],
    [{ table: '' }],
    [{ table: null as never }],
    [{ table: ['locks'] as never }],
    [{ sessionGuard: '500ms' }],
    [{ statementTimeout: 0 }],
    [{ fencing: 'false' as never }],
    [{ maxConnections: 1 }],
    [{ maxConnections: 1.5 }],
    [{ dataSource: new DataSource({ type: 'sqljs' }) }],
    [{ dataSource: undefined as never }],
    [{ dataSource: { type: 'mysql' } as never }],
  ])('%j is refused', (options) => {
    expect(() => readOptions({ dataSource, ...options })).toThrow(LockConfigError);
  });

  it.each([TypeOrmRowLockProvider, TypeOrmAdvisoryLockProvider, TypeOrmVersionLockProvider])(
    'of a kind that only JavaScript lets pass are refused by name: %p',
    (Provider) => {
      const make = (options: unknown) => () => new Provider(options as never);
      const refused: readonly [option: string, values: readonly unknown[]][] = [
        ['dataSource', [undefined, null, {}, 'mysql://nowhere', { type: 'mysql' }]],
        ['table', [['a'], 5, null]],
        ['synchronize', ['false', 0, null]],
        ['allowUnsafeTopology', ['true', 1]],
        ['maxConnections', ['5']],
        ['statementTimeout', [{}, true]],
      ];
      for (const [option, values] of refused) {
        for (const value of values) {
          expect(make({ dataSource, [option]: value })).toThrow(LockConfigError);
          expect(make({ dataSource, [option]: value })).toThrow(`"${option}"`);
        }
      }
      for (const none of [undefined, null, 'options']) expect(make(none)).toThrow(LockConfigError);
    },
  );

  it('the pool is made on the writer, in its own size', () => {
    const replicated = (type: 'mysql' | 'postgres', extra: object) =>
      ({ type, extra, replication: { master: { host: 'writer' }, slaves: [] } }) as DataSourceOptions;
    expect(ownMysqlPool(replicated('mysql', { a: 1 }), 7, 300)).toEqual({
      ...{ type: 'mysql', host: 'writer', connectTimeout: 300, extra: { a: 1, connectionLimit: 7 } },
    });
    expect(ownPostgresPool(replicated('postgres', { a: 1, query_timeout: 9 }), 7, 300)).toEqual({
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
    [{ errno: 3058 }, 'rolled-back'],
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

  // Where no such server can be had: transaction_timeout is of Postgres 17.
  it('Postgres: a limit for whole transactions is taken off', async () => {
    const sent: string[] = [];
    await postgresDialect('locks').setUp((sql) => Promise.resolve(void sent.push(sql)), 30_000, Infinity);
    expect(sent[0]).toMatch(/WHEN 'transaction_timeout' THEN '0'.*FROM pg_settings WHERE.*'transaction_timeout'/);
  });

  // Nor here. Galera, read-only servers, standbys and PgBouncer are real in topology.spec.ts.
  it.each([
    ['wsrep_on', 'ON', /Galera/],
    ['group_replication_single_primary_mode', 'OFF', /single primary/],
    ['super_read_only', 'ON', /super_read_only/],
    ['innodb_read_only', 'ON', /innodb_read_only/],
    ['read_only', 'NO_LOCK_NO_ADMIN', /read_only/],
  ])('MySQL: %s = %s is an error', async (Variable_name, Value, message) => {
    const run = () => Promise.resolve([{ Variable_name, Value }]);
    const found = await mysqlDialect('locks', '').examine(run, run);
    expect(found).toEqual([{ severity: 'error', message: expect.stringMatching(message) as string }]);
  });
});
