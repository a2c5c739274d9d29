import { LockConfigError } from '../../../api/errors.js';
import { propertyOf } from '../connection/answer.js';
import { type MysqlConnection, newConnection } from '../connection/mysql-dialect.js';
import { newClient, type PgClient } from '../connection/postgres-dialect.js';
import type { ServerSource } from './source.js';

/** What the drivers have in common; each knows more, and all of it may be given. */
export interface SqlServerSettings {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  readonly user?: string | undefined;
  readonly database?: string | undefined;
}

/**
 * The server, by exactly one of these. It is a configuration and never the application's pool: the locks open connections of their own, with
 * their own time limits, and waiters in a pool would block the application.
 */
export type SqlConnectionOptions =
  /** `postgres://`, `postgresql://`, `mysql://` or `mariadb://`, with user, password and database. */
  | { readonly url: string; readonly postgres?: undefined; readonly mysql?: undefined }
  /** What `new Client(…)` of `pg` takes: also TLS, a socket, a function that gives the password. */
  | { readonly postgres: SqlServerSettings | object; readonly url?: undefined; readonly mysql?: undefined }
  /** What `createConnection(…)` of `mysql2` takes, for MySQL and MariaDB: also TLS, a socket, `authPlugins`. */
  | { readonly mysql: SqlServerSettings | object; readonly url?: undefined; readonly postgres?: undefined };

// Variables, so that no bundler and no compiler looks for an optional peer.
const PG: string = 'pg';
const MYSQL2: string = 'mysql2';

/** @throws LockConfigError for options that name no server, or several */
export function sourceOf(provider: string, options: SqlConnectionOptions): ServerSource {
  const [url, postgres, mysql] = ['url', 'postgres', 'mysql'].map((name) => propertyOf(options, name));
  if ([url, postgres, mysql].filter((given) => given !== undefined).length !== 1) {
    throw new LockConfigError(`${provider} needs exactly one of "url", "postgres" and "mysql".`);
  }
  if (url !== undefined) return ofUrl(provider, url);
  if (postgres !== undefined) return ofPostgres(settingsOf(provider, 'postgres', postgres));
  return ofMysql(settingsOf(provider, 'mysql', mysql));
}

function ofUrl(provider: string, url: unknown): ServerSource {
  switch (typeof url === 'string' && URL.canParse(url) ? new URL(url).protocol : undefined) {
    case 'postgres:':
    case 'postgresql:':
      return ofPostgres({ connectionString: url });
    case 'mysql:':
    case 'mariadb:':
      return ofMysql({ uri: url });
    default:
      // Not the address itself: it may have a password.
      throw new LockConfigError(
        `${provider}: "url" must begin with postgres://, postgresql://, mysql:// or mariadb://.`,
      );
  }
}

function settingsOf(provider: string, option: string, settings: unknown): object {
  // The method is that of pools and clients.
  if (typeof settings === 'object' && settings !== null && typeof propertyOf(settings, 'query') !== 'function') {
    return settings;
  }
  throw new LockConfigError(
    `${provider}: "${option}" must be the configuration of a connection, not a pool or a connection: the locks open their own.`,
  );
}

function ofPostgres(settings: object): ServerSource {
  return {
    database: 'postgres',
    async create(connectTimeout) {
      const { Client } = (await load(PG)) as { Client: new (settings: object) => PgClient };
      return newClient(Client, settings, connectTimeout);
    },
  };
}

function ofMysql(settings: object): ServerSource {
  return {
    database: 'mysql',
    async create(connectTimeout) {
      const driver = (await load(MYSQL2)) as { createConnection(settings: object): MysqlConnection };
      return newConnection(driver, { ...settings, connectTimeout });
    },
  };
}

async function load(driver: string): Promise<unknown> {
  try {
    const loaded: unknown = await import(driver);
    // Both are CommonJS.
    return propertyOf(loaded, 'default') ?? loaded;
  } catch (cause) {
    throw new LockConfigError(`SQL locks need the driver "${driver}": npm install ${driver}.`, { cause });
  }
}
