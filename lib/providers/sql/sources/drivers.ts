import { LockConfigError } from '../../../api/errors.js';
import { checkGiven, refuseUnknown, unknownIn } from '../../../core/toolkit/given-options.js';
import { propertyOf } from '../connection/answer.js';
import { reasonOf } from '../connection/failure.js';
import { SQL_OPTIONS } from '../option-names.js';
import type { SqlSource } from './source.js';

/** The settings that the drivers have in common; each knows more, and all of them may be given. */
export interface SqlServerSettings {
  readonly host?: string;
  readonly port?: number;
  readonly user?: string;
  readonly database?: string;
}

/**
 * The server, by exactly one of these. It is a configuration and never the application's pool: the locks open connections of their own, with
 * their own time limits, and waiters in a pool would block the application. It is read at each connection, so a getter may give a password
 * that is rotated.
 */
// The compiler explains an address that does not fit by the last member, and most users give a URL.
export type SqlConnectionOptions =
  /** The configuration of `new Client(…)` of `pg`: also TLS, a socket, a function that gives the password. */
  | { readonly postgres: SqlServerSettings | object; readonly url?: undefined; readonly mysql?: undefined }
  /** The configuration of `createConnection(…)` of `mysql2`, for MySQL and MariaDB: also TLS, a socket, `authPlugins`; not `queryFormat`. */
  | { readonly mysql: SqlServerSettings | object; readonly url?: undefined; readonly postgres?: undefined }
  /** `postgres://`, `postgresql://`, `mysql://` or `mariadb://`, with user, password and database. */
  | { readonly url: string; readonly postgres?: undefined; readonly mysql?: undefined };

// Names in a variable, so that no bundler and no compiler looks for an optional peer.
const DRIVERS: Readonly<Record<SqlSource['database'], string>> = { mysql: 'mysql2', postgres: 'pg' };
const PROTOCOLS = new Map([
  ['postgres:', 'postgres'],
  ['postgresql:', 'postgres'],
  ['mysql:', 'mysql'],
  ['mariadb:', 'mysql'],
] as const);

const SOURCES = ['url', 'postgres', 'mysql'] as const;
const OPTIONS = { url: true, postgres: true, mysql: true, ...SQL_OPTIONS };

/** @throws LockConfigError for options that name no server, or several, or that do not exist */
export function sourceOf(provider: string, options: SqlConnectionOptions): SqlSource {
  const example = `new ${provider}({ url: 'postgres://user:password@localhost:5432/shop' }), with exactly one of "url", "postgres" and "mysql"`;
  checkGiven(provider, options, example, SOURCES);
  const [name, other] = SOURCES.filter((option) => propertyOf(options, option) !== undefined);
  if (name === undefined || other !== undefined) {
    const remedy = `${unknownIn(options, OPTIONS)} Write { url: 'postgres://user:password@localhost:5432/shop' } or { postgres: { host: 'localhost', user: 'shop' } }.`;
    throw new LockConfigError(
      `${provider} needs exactly one of "url", "postgres" and "mysql".${name === undefined ? remedy : ` "${name}" and "${other}" were given: remove one.`}`,
    );
  }
  refuseUnknown(provider, options, OPTIONS, 'those of the driver belong into "postgres" or "mysql"');
  const given: unknown = options[name];
  if (name === 'url') return ofUrl(provider, options);
  // The method is that of pools and clients.
  if (typeof given === 'object' && given !== null && typeof propertyOf(given, 'query') !== 'function') {
    return withDriver(name, () => options[name] as object);
  }
  throw new LockConfigError(
    `${provider}: "${name}" must be the configuration of a connection, not a pool or a connection: the locks open their own.${typeof given === 'string' ? ' It is a text: an address is given as "url".' : ''}`,
  );
}

function ofUrl(provider: string, options: { readonly url?: unknown }): SqlSource {
  const { url } = options;
  const protocol = typeof url === 'string' && URL.canParse(url) ? new URL(url).protocol : '';
  const database = PROTOCOLS.get(protocol as 'mysql:');
  const address = database === 'mysql' ? 'uri' : 'connectionString';
  if (database) return withDriver(database, () => ({ [address]: options.url }));
  // Not the address itself: it may have a password.
  const [scheme] = (typeof url === 'string' && /^[a-z][a-z\d+.-]*:\/\//i.exec(url)) || [];
  throw new LockConfigError(
    `${provider}: "url" must begin with postgres://, postgresql://, mysql:// or mariadb://, and ${scheme === undefined ? 'has no scheme' : PROTOCOLS.has(scheme.slice(0, -2) as 'mysql:') ? 'is no URL behind it' : `begins with ${scheme}`}.`,
  );
}

/** @param settings read at each connection, since it may be a getter that gives a new token */
function withDriver(database: SqlSource['database'], settings: () => object): SqlSource {
  const load = async () => ({ driver: await loaded(DRIVERS[database]), settings: settings() });
  return { database, load } as SqlSource;
}

async function loaded(driver: string): Promise<unknown> {
  try {
    const module: unknown = await import(driver);
    // Both are CommonJS.
    return propertyOf(module, 'default') ?? module;
  } catch (cause) {
    throw new LockConfigError(
      `SQL locks could not load the driver "${driver}": ${reasonOf(cause)}. Install it where the application runs: npm install ${driver}.`,
      { cause },
    );
  }
}
