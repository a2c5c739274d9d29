import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../api/errors.js';
import { propertyOf } from '../sql/connection/answer.js';
import { familyOf } from '../sql/table/family.js';
import { type MysqlConnection, type MysqlSource, newConnection } from '../sql/connection/mysql-dialect.js';
import { newClient, type PgClient, type PostgresSource } from '../sql/connection/postgres-dialect.js';
import type { SqlSource } from '../sql/sources/source.js';
import { openFile, shareSqljs } from './sqlite.js';

/** The part of TypeORM's driver that is used here: it knows how the options of a DataSource become those of mysql2. */
interface MysqlDriver {
  readonly mysql: { createConnection(options: object): MysqlConnection };
  createConnectionOptions(options: object, credentials: object): object;
}

interface PgDriver {
  readonly Client: new (settings: object) => PgClient;
}

/** The options of a DataSource that become those of a connection. */
interface Credentials {
  readonly url?: string;
  readonly host?: string;
  readonly port?: number;
  readonly username?: string;
  readonly password?: unknown;
  readonly database?: string;
  readonly ssl?: unknown;
  readonly applicationName?: string;
}

interface PostgresOptions extends Credentials {
  readonly replication?: { readonly master?: Credentials };
  readonly extra?: object;
}

/**
 * Connections of our own to the database of a DataSource, to the writer where there are several.
 *
 * @throws LockConfigError for anything but a DataSource, and for a database without locks
 */
export function sourceOf(provider: string, given: { readonly dataSource: DataSource }): SqlSource {
  const type = propertyOf(propertyOf(propertyOf(given, 'dataSource'), 'options'), 'type');
  // By its options: there may be two copies of TypeORM.
  if (typeof type !== 'string') throw new LockConfigError(`${provider}: "dataSource" must be a DataSource of TypeORM.`);
  const { dataSource } = given;
  const { options } = dataSource;
  switch (familyOf(type)) {
    case 'mysql':
      return mysqlSource(options);
    case 'postgres':
      return postgresSource(options);
    case 'sqlite':
      refuseMemory(provider, options);
      return {
        database: 'sqlite',
        open: () => (options.type === 'sqljs' ? shareSqljs(dataSource) : openFile(options)),
      };
    default:
      throw new LockConfigError(`${provider} does not work with databases of type "${type}".`);
  }
}

function mysqlSource(options: DataSourceOptions): MysqlSource {
  const { replication, ...rest } = options as DataSourceOptions & { replication?: { master?: object } };
  const own = { ...rest, ...replication?.master } as DataSourceOptions;
  let driver: MysqlDriver | undefined;
  return {
    database: 'mysql',
    create(connectTimeout) {
      driver ??= driverOf(own);
      const settings = { ...own, connectTimeout };
      return newConnection(driver.mysql, driver.createConnectionOptions(settings, settings));
    },
  };
}

/** @throws LockConfigError for another driver than mysql2, which would end the process when a connection is closed from outside */
function driverOf(options: DataSourceOptions): MysqlDriver {
  // TypeORM 0.3 takes `mysql` first where both are installed.
  const { driver } = new DataSource({ ...options, connectorPackage: 'mysql2' } as object as DataSourceOptions);
  const mysqlDriver = driver as unknown as MysqlDriver;
  if ('authPlugins' in mysqlDriver.mysql) return mysqlDriver;
  throw new LockConfigError(
    'Locks on MySQL and MariaDB need the driver mysql2: install it (npm install mysql2), and remove another "driver" from the options of the DataSource.',
  );
}

/** Its clients are as TypeORM makes them for its own pool, on the primary. */
function postgresSource(options: DataSourceOptions): PostgresSource {
  const { replication, extra, ...rest } = options as unknown as PostgresOptions;
  const { url, username, applicationName, host, port, password, database, ssl } = replication?.master ?? rest;
  const settings = {
    ...{ connectionString: url, host, port, user: username, password, database, ssl },
    application_name: rest.applicationName ?? applicationName,
    ...extra,
  };
  let driver: PgDriver | undefined;
  return {
    database: 'postgres',
    create(connectTimeout) {
      driver ??= propertyOf(new DataSource(options).driver, 'postgres') as PgDriver;
      return newClient(driver.Client, settings, connectTimeout);
    },
  };
}

function refuseMemory(provider: string, options: DataSourceOptions): void {
  if (options.type !== 'better-sqlite3' || (options.database !== '' && !options.database.startsWith(':memory:')))
    return;
  throw new LockConfigError(
    `${provider}: a database of better-sqlite3 in memory belongs to one connection only; give it a file.`,
  );
}
