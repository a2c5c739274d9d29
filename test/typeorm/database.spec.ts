import { DataSource, type DataSourceOptions } from 'typeorm';
import { faultOf } from '../../lib/providers/sql/connection/failure.js';
import { FAMILIES } from '../../lib/providers/sql/connection/databases.js';
import type { SqlSource } from '../../lib/providers/sql/connection/dialect.js';
import { readOptions as readOptionsOf } from '../../lib/providers/typeorm/data-source.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  type TypeOrmSessionLockOptions,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { LockConfigError } from '../../lib/api/errors.js';

const dataSource = new DataSource({ type: 'mysql', host: 'nowhere' });
const KIND = { guard: 30_000, lockWait: 30_000, autocommit: false };
const readOptions = (options: TypeOrmSessionLockOptions) =>
  readOptionsOf('TypeOrmAdvisoryLockProvider', 'advisory', options);
const unreachable = () => Promise.reject(new Error("Tests don't connect to this server."));
const MYSQL: SqlSource = { database: 'mysql', load: unreachable };
const POSTGRES: SqlSource = { database: 'postgres', load: unreachable };

describe('options of locks that live as long as a connection', () => {
  it('have defaults', () => {
    expect(readOptions({ dataSource })).toMatchObject({
      source: { database: 'mysql' },
      table: 'distributed_lock',
      synchronize: false,
      fencing: false,
      allowUnsafeTopology: false,
      sessionGuard: 30_000,
      commandTimeout: 2_000,
      maxConnections: 10,
    });
  });

  it.each([
    [{ table: 'a; DROP TABLE b' }],
    [{ table: 'a.b.c' }],
    [{ table: '' }],
    [{ table: null as never }],
    [{ table: ['locks'] as never }],
    [{ sessionGuard: '500ms' }],
    [{ commandTimeout: 0 }],
    [{ fencing: 'false' as never }],
    [{ maxConnections: 1 }],
    [{ maxConnections: 1.5 }],
    [{ dataSource: new DataSource({ type: 'sqljs' }) }],
    [{ dataSource: undefined as never }],
    [{ dataSource: { type: 'mysql' } as never }],
  ])('%j is rejected', (options) => {
    expect(() => readOptions({ dataSource, ...options })).toThrow(LockConfigError);
  });

  it.each([TypeOrmRowLockProvider, TypeOrmAdvisoryLockProvider, TypeOrmVersionLockProvider])(
    'options with types that only JavaScript allows are rejected by name: %p',
    (Provider) => {
      const make = (options: unknown) => () => new Provider(options as never);
      const refused: readonly [option: string, values: readonly unknown[]][] = [
        ['dataSource', [undefined, null, {}, 'mysql://nowhere', { type: 'mysql' }]],
        ['table', [['a'], 5, null]],
        ['synchronize', ['false', 0, null]],
        ['allowUnsafeTopology', ['true', 1]],
        ['maxConnections', ['5']],
        ['commandTimeout', [{}, true]],
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

  it('connections go to the writer', async () => {
    const connectTo = (dataSource: DataSource) => {
      const { source } = readOptions({ dataSource, maxConnections: 2 });
      const dialect = FAMILIES[source.database].dialectFor(source, 5_000, true);
      return dialect.connect();
    };
    for (const type of ['mysql', 'postgres'] as const) {
      const replication = { master: { host: '127.0.0.1', port: 1 }, slaves: [] };
      const options = { type, host: 'nowhere', port: 2, replication, extra: { query_timeout: 9 } };
      await expect(connectTo(new DataSource(options as DataSourceOptions))).rejects.toThrow('127.0.0.1:1');
    }
  });
});

describe('dialects', () => {
  it.each([
    ['8.0.36', 'FOR SHARE'],
    ['10.11.6-MariaDB', 'LOCK IN SHARE MODE'],
  ])('MySQL and MariaDB spell a shared lock differently: %s', async (Value, spelled) => {
    const dialect = FAMILIES.mysql.dialectFor(MYSQL, 1_000, true);
    const run = () => Promise.resolve([{ Variable_name: 'version', Value }]);
    await dialect.setUp({} as never, run, KIND);
    expect(dialect.lockRow('FROM t', 'shared', 'false')).toBe(`SELECT false AS read_only FROM t ${spelled}`);
  });

  it.each(['8.0.0', '5.7.44-log', '10.5.23-MariaDB'])(
    'MySQL and MariaDB fail the boot if they are too old: %s',
    async (Value) => {
      const dialect = FAMILIES.mysql.dialectFor(MYSQL, 1_000, true);
      const run = () => Promise.resolve([{ Variable_name: 'version', Value }]);
      const setUp = dialect.setUp({} as never, run, KIND);
      await expect(setUp).rejects.toBeInstanceOf(LockConfigError);
      await expect(setUp).rejects.toThrow('is too old for locks');
    },
  );

  it.each([
    [['Variable_name', 'version'], 'tx_isolation'],
    [['Variable_name', 'transaction_isolation'], 'transaction_isolation'],
  ])('the isolation level is set under the name that the server uses: %j', async ([key, name], variable) => {
    const sent: string[] = [];
    const run = (sql: string) => {
      sent.push(sql);
      return Promise.resolve([{ [key!]: name, Value: name === 'version' ? '10.11.6-MariaDB' : 'READ-COMMITTED' }]);
    };
    await FAMILIES.mysql.dialectFor(MYSQL, 1_000, true).setUp({} as never, run, KIND);
    expect(sent.join()).toContain(` ${variable} = 'READ-COMMITTED'`);
  });

  it("MySQL's goodbye to a silent client does not count as the reply to a statement sent meanwhile", () => {
    const { isAnswer } = FAMILIES.mysql.dialectFor(MYSQL, 1_000, true);
    expect(isAnswer({ errno: 4031, sqlState: 'HY000' })).toBe(false);
    expect(isAnswer({ errno: 1213, sqlState: '40001' })).toBe(true);
  });

  it.each([
    [{ errno: 1205 }, 'busy'],
    [{ errno: 3572 }, 'busy'],
    [{ errno: 1969 }, 'busy'],
    [{ errno: 3024 }, 'busy'],
    [{ errno: 1213 }, 'rolled-back'],
    [{ errno: 3058 }, 'rolled-back'],
    [{ errno: 1020 }, 'rolled-back'],
    [{ errno: 1206 }, 'rolled-back'],
    [{ errno: 1146 }, 'no-table'],
    [{ errno: 1142 }, 'refused'],
    [{ errno: 1290 }, 'read-only'],
    [{ errno: 1064 }, 'refused'],
    [{ errno: 1040 }, undefined],
    [{ code: 'ECONNRESET' }, undefined],
  ])('MySQL: %j is %s', (properties, fault) => {
    expect(faultOf(Object.assign(new Error(), properties))).toBe(fault);
  });

  it.each([
    ['55P03', 'busy'],
    ['57014', 'busy'],
    ['40P01', 'rolled-back'],
    ['40001', 'rolled-back'],
    ['42P01', 'no-table'],
    ['42501', 'refused'],
    ['25006', 'read-only'],
    ['42601', 'refused'],
    ['28P01', 'login'],
    ['53300', undefined],
    ['57P01', undefined],
  ])('Postgres: %s is %s', (code, fault) => {
    expect(faultOf(Object.assign(new Error(), { code }))).toBe(fault);
  });

  it('Postgres fails the boot if it is too old', async () => {
    const run = () => Promise.resolve([{ pid: 1, begun: 1, version: '12.22' }]);
    const setUp = FAMILIES.postgres.dialectFor(POSTGRES, 1_000, true).setUp({} as never, run, KIND);
    await expect(setUp).rejects.toThrow('PostgreSQL 12.22 is too old for locks: use version 13 or later.');
  });

  // Scripted, because Postgres 17 introduced transaction_timeout and the test server may be older.
  it('Postgres: the time limit for whole transactions is removed', async () => {
    const sent: string[] = [];
    const dialect = FAMILIES.postgres.dialectFor(POSTGRES, 1_000, true);
    await dialect.setUp({} as never, (sql) => Promise.resolve(void sent.push(sql)), KIND);
    expect(sent).toContainEqual(expect.stringMatching(/set_config\('transaction_timeout', '0', false\)/));
  });

  // Also scripted. topology.spec.ts tests Galera, read-only servers, standbys and PgBouncer on real servers.
  it.each([
    ['wsrep_on', 'ON', /Galera/],
    ['group_replication_single_primary_mode', 'OFF', /single primary/],
    ['super_read_only', 'ON', /super_read_only/],
    ['innodb_read_only', 'ON', /innodb_read_only/],
    ['read_only', 'NO_LOCK_NO_ADMIN', /read_only/],
  ])('MySQL: %s = %s is an error', async (Variable_name, Value, message) => {
    const run = () => Promise.resolve([{ Variable_name, Value }]);
    const { unsafe, readOnly } = await FAMILIES.mysql.dialectFor(MYSQL, 1_000, true).setUp({} as never, run, KIND);
    expect([...unsafe, ...readOnly]).toEqual([expect.stringMatching(message)]);
  });
});
