import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../api/errors.js';
import { type OptionTable, secret } from '../../core/toolkit/options.js';
import { propertyOf } from '../sql/connection/answer.js';
import { readSqlOptions, type SqlKind, type SqlLockOptions, type SqlSettings } from '../sql/options.js';
import type { DatabaseFamily, SqlSource } from '../sql/connection/dialect.js';

/** The part of TypeORM's driver that is used here. It converts DataSource options into mysql2 options. */
interface TypeOrmMysqlDriver {
  readonly mysql: unknown;
  createConnectionOptions(options: object, credentials: object): object;
}

/** The options common to all TypeORM locks. */
export type TypeOrmLockOptions = SqlLockOptions & {
  /**
   * The application's DataSource: `mysql`, `mariadb`, or `postgres`. Its options are used to open separate connections.
   * It doesn't need to be initialized, except for `entityManagerOf`.
   */
  readonly dataSource: DataSource;
};
type OnDataSource = Pick<TypeOrmLockOptions, 'dataSource'>;

const ADDRESS = {
  // Don't show strings, which may be URLs with passwords.
  dataSource: secret<DataSource>(
    'a TypeORM DataSource: pass new DataSource(options), or the one that Nest injects',
    // Check the options rather than the class, because there may be two copies of TypeORM.
    (given) =>
      typeof propertyOf(propertyOf(given, 'options'), 'type') === 'string' ? (given as DataSource) : undefined,
  )
    .written()
    .required(),
} satisfies OptionTable<OnDataSource>;

/** @throws LockConfigError if it isn't a DataSource, its database isn't supported, or an option is invalid */
export function readOptions(name: string, kind: SqlKind, options: OnDataSource): SqlSettings {
  const others = 'connection options go in the DataSource';
  const owner = { name, example: `new ${name}({ dataSource })`, others };
  return readSqlOptions(owner, kind, options, ADDRESS, () => sourceOf(name, options.dataSource));
}

/** Opens separate connections to a DataSource's database, or to its writer if there are several servers. */
function sourceOf(provider: string, dataSource: DataSource): SqlSource {
  const database = databaseOf(provider, dataSource.options.type);
  return database === 'mysql' ? mysqlSource(dataSource) : postgresSource(dataSource);
}

/** @throws LockConfigError for a type that no lock provider supports */
export function databaseOf(user: string, type: string): DatabaseFamily {
  if (type === 'mysql' || type === 'mariadb') return 'mysql';
  if (type === 'postgres') return 'postgres';
  throw new LockConfigError(
    `${user} does not support databases of type "${type}": use MySQL, MariaDB or Postgres, or another kind of provider.`,
  );
}

function mysqlSource(dataSource: DataSource): SqlSource {
  let driver: TypeOrmMysqlDriver | undefined;
  return {
    database: 'mysql',
    load() {
      const { replication, ...rest } = dataSource.options as DataSourceOptions & { replication?: { master?: object } };
      const own = { ...rest, ...replication?.master };
      driver ??= (ownMysqlDriver(dataSource.options) ?? dataSource.driver) as TypeOrmMysqlDriver;
      assertOpens(driver.mysql, 'createConnection', 'mysql2');
      return Promise.resolve({ driver: driver.mysql, settings: driver.createConnectionOptions(own, own) });
    },
  };
}

/**
 * Loads mysql2, because TypeORM 0.3 prefers `mysql` if both are installed. Undefined if this copy of TypeORM can't find
 * mysql2.
 */
function ownMysqlDriver(options: DataSourceOptions): unknown {
  try {
    return new DataSource({ ...options, connectorPackage: 'mysql2' } as object as DataSourceOptions).driver;
  } catch {
    return undefined;
  }
}

/** @throws LockConfigError if the driver can't open separate connections */
function assertOpens(driver: unknown, part: string, name: string): void {
  if (typeof propertyOf(driver, part) === 'function') return;
  throw new LockConfigError(
    `The DataSource "driver" has no ${part}, which locks need to open their own connections. Pass the whole module (driver: require('${name}')), or omit "driver".`,
  );
}

/** Creates clients for the primary, as TypeORM's own pool does. */
function postgresSource(dataSource: DataSource): SqlSource {
  let driver: unknown;
  return {
    database: 'postgres',
    load() {
      const { options } = dataSource;
      const { replication, extra, ...rest } = options as unknown as Readonly<Record<string, object | undefined>>;
      const given = (propertyOf(replication, 'master') ?? rest) as Readonly<Record<string, unknown>>;
      const { url, username, applicationName, host, port, password, database, ssl } = given;
      driver ??= propertyOf(dataSource.driver, 'postgres');
      assertOpens(driver, 'Client', 'pg');
      const settings = {
        ...{ connectionString: url, host, port, user: username, password, database, ssl },
        application_name: rest['applicationName'] ?? applicationName,
        ...extra,
      };
      return Promise.resolve({ driver, settings });
    },
  };
}
