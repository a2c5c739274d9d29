import { DataSource, type DataSourceOptions } from 'typeorm';
import { LockConfigError } from '../../api/errors.js';
import { propertyOf } from '../sql/answer.js';
import { familyOf } from '../sql/family.js';
import type { MysqlConnection } from '../sql/mysql-dialect.js';
import type { PgClient } from '../sql/postgres-dialect.js';
import type { SqlSource } from '../sql/source.js';
import { openFile, shareSqljs } from './sqlite.js';

/** The part of TypeORM's driver that is used here: it knows how the options of a DataSource become those of mysql2. */
interface MysqlDriver {
  readonly mysql: { createConnection(options: object): MysqlConnection };
  createConnectionOptions(options: object, credentials: object): object;
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
      return { database: 'mysql', create: (connectTimeout) => mysqlConnection(options, connectTimeout) };
    case 'postgres':
      return { database: 'postgres', create: (connectTimeout) => pgClient(options, connectTimeout) };
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

function mysqlConnection(options: DataSourceOptions, connectTimeout: number): MysqlConnection {
  const { replication, ...rest } = options as DataSourceOptions & { replication?: { master?: object } };
  const own = { ...rest, ...replication?.master, connectTimeout } as DataSourceOptions;
  // TypeORM 0.3 takes `mysql` first where both are installed.
  const { driver } = new DataSource({ ...own, connectorPackage: 'mysql2' } as object as DataSourceOptions);
  const mysqlDriver = driver as unknown as MysqlDriver;
  // Another one would end the process when a connection is closed from outside.
  if (!('authPlugins' in mysqlDriver.mysql)) {
    throw new LockConfigError(
      'Locks on MySQL and MariaDB need the driver mysql2: install it (npm install mysql2), and remove another "driver" from the options of the DataSource.',
    );
  }
  return mysqlDriver.mysql.createConnection(mysqlDriver.createConnectionOptions(own, own));
}

/** As TypeORM makes it for its own pool, on the primary. */
function pgClient(options: DataSourceOptions, connectTimeout: number): PgClient {
  const { replication, extra, ...rest } = options as unknown as PostgresOptions;
  const { url, username, applicationName, host, port, password, database, ssl } = replication?.master ?? rest;
  const { Client } = propertyOf(new DataSource(options).driver, 'postgres') as {
    Client: new (settings: object) => PgClient;
  };
  return new Client({
    ...{ connectionString: url, host, port, user: username, password, database, ssl },
    application_name: rest.applicationName ?? applicationName,
    ...extra,
    connectionTimeoutMillis: connectTimeout,
    // With it pg gives up a statement that the server goes on with, so a wait would be granted a lock that nobody has.
    query_timeout: undefined,
  });
}

function refuseMemory(provider: string, options: DataSourceOptions): void {
  if (options.type !== 'better-sqlite3' || (options.database !== '' && !options.database.startsWith(':memory:')))
    return;
  throw new LockConfigError(
    `${provider}: a database of better-sqlite3 in memory belongs to one connection only; give it a file.`,
  );
}
