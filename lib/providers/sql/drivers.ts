import { LockConfigError } from '../../api/errors.js';
import { foreign, type OptionTable, type Owner, refuse, secret } from '../../core/toolkit/options.js';
import { propertyOf } from './connection/answer.js';
import type { DatabaseFamily, SqlSource } from './connection/dialect.js';
import { reasonOf } from './connection/failure.js';
import { readSqlOptions, type SqlKind, type SqlSettings } from './options.js';

/** The settings that the drivers have in common. Each driver also accepts its own. */
export interface SqlServerSettings {
  readonly host?: string;
  readonly port?: number;
  readonly user?: string;
  readonly database?: string;
}

/**
 * The server's configuration, in one of these forms. Never pass the application's pool: locks open their own
 * connections with their own time limits, and waiters in a pool would block the application. The configuration is read
 * for each connection, so a getter may return a rotated password.
 */
// The URL is last because most users pass one, and the compiler's mismatch error describes the last member.
export type SqlConnectionOptions =
  /**
   * The configuration for `new Client(…)` of `pg`, including TLS, a socket, or a function that returns the password.
   */
  | { readonly postgres: SqlServerSettings | object; readonly url?: undefined; readonly mysql?: undefined }
  /**
   * The configuration for `createConnection(…)` of `mysql2`, for MySQL and MariaDB, including TLS, a socket, or
   * `authPlugins`, but not `queryFormat`.
   */
  | { readonly mysql: SqlServerSettings | object; readonly url?: undefined; readonly postgres?: undefined }
  /** A `postgres://`, `postgresql://`, `mysql://`, or `mariadb://` URL with a user, password, and database. */
  | { readonly url: string; readonly postgres?: undefined; readonly mysql?: undefined };

// Stored in a variable so that bundlers and compilers don't try to resolve optional peer dependencies.
const DRIVERS: Readonly<Record<DatabaseFamily, string>> = { mysql: 'mysql2', postgres: 'pg' };
const PROTOCOLS = new Map([
  ['postgres:', 'postgres'],
  ['postgresql:', 'postgres'],
  ['mysql:', 'mysql'],
  ['mariadb:', 'mysql'],
] as const);

const CONFIGURATION = 'a connection configuration, not a pool or a connection: the provider opens its own';
const ADDRESS = {
  url: secret('an address', addressOf).written(),
  postgres: foreign(CONFIGURATION, configurationOf).written(),
  mysql: foreign(CONFIGURATION, configurationOf).written(),
} satisfies OptionTable<SqlConnectionOptions>;

/** @throws LockConfigError if the options are invalid or don't specify exactly one server */
export function readOptions(name: string, kind: SqlKind, options: SqlConnectionOptions): SqlSettings {
  const owner = {
    name,
    example: `new ${name}({ url: 'postgres://user:password@localhost:5432/shop' }) or new ${name}({ postgres: { host: 'localhost', user: 'shop' } })`,
    oneOf: ['url', 'postgres', 'mysql'],
    others: 'driver options go in "postgres" or "mysql"',
  };
  return readSqlOptions(owner, kind, options, ADDRESS, () => sourceOf(options));
}

function sourceOf(options: SqlConnectionOptions): SqlSource {
  const database = databaseOf(options.url ?? '') ?? (options.postgres ? 'postgres' : 'mysql');
  const urlName = database === 'mysql' ? 'uri' : 'connectionString';
  const load = async () => ({
    driver: await loaded(DRIVERS[database]),
    // Read for each connection, because it may be a getter that returns a new token.
    settings: options.url === undefined ? (options[database] as object) : { [urlName]: options.url },
  });
  return { database, load };
}

function configurationOf(given: unknown): object | undefined {
  // Pools and clients have a `query` method.
  return typeof given === 'object' && given !== null && typeof propertyOf(given, 'query') !== 'function'
    ? given
    : undefined;
}

function databaseOf(url: string): DatabaseFamily | undefined {
  return URL.canParse(url) ? PROTOCOLS.get(new URL(url).protocol as 'mysql:') : undefined;
}

function addressOf(url: unknown, owner: Owner, name: string): string {
  if (typeof url === 'string' && databaseOf(url)) return url;
  // Don't show the URL, because it may contain a password.
  const [scheme] = (typeof url === 'string' && /^[a-z][a-z\d+.-]*:\/\//i.exec(url)) || [];
  return refuse(
    owner,
    name,
    `must begin with postgres://, postgresql://, mysql:// or mariadb://, but ${scheme === undefined ? 'has no scheme' : PROTOCOLS.has(scheme.slice(0, -2) as 'mysql:') ? 'is not a valid URL' : `begins with ${scheme}`}.`,
  );
}

async function loaded(driver: string): Promise<unknown> {
  try {
    const module: unknown = await import(driver);
    // Both drivers are CommonJS modules.
    return propertyOf(module, 'default') ?? module;
  } catch (cause) {
    throw new LockConfigError(
      `SQL locks could not load the driver "${driver}": ${reasonOf(cause)}. Install it in the application: npm install ${driver}.`,
      { cause },
    );
  }
}
