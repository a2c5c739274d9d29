import type { DataSource } from 'typeorm';
import { type Duration, toMilliseconds } from '../../lock/duration.js';
import { LockConfigError } from '../../lock/errors.js';
import { propertyOf } from './dialect.js';
import type { SessionTerms } from './sessions.js';
import { DEFAULT_TABLE, isTableName } from './table-layout.js';

/** Where the locks are that live as long as a connection, and how long they last without a sign of life. */
export interface TypeOrmSessionLockOptions {
  /** The application's own: `mysql`, `mariadb` or `postgres`. Its options are used for a pool of our own; it is never used or closed. */
  readonly dataSource: DataSource;
  /** The table of the row locks and of the fencing counters, `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string | undefined;
  /** Create the table when it is missing. Default false: create it in a migration. */
  readonly synchronize?: boolean | undefined;
  /**
   * After how many ms without a sign of life the server frees the locks of a process that is frozen or cut off. A heartbeat each
   * third of it. Default 30 s, at least 1 s.
   */
  readonly sessionGuard?: Duration | undefined;
  /** How many connections this process may have for locks; one more is for control. Default 10. */
  readonly maxConnections?: number | undefined;
  /** Fencing tokens, by a counter that is committed at each grant. Default false; costs one commit a lock. */
  readonly fencing?: boolean | undefined;
  /** How long the server may be silent after a statement of ours, in ms, before its outcome counts as unknown. Default 2 s, at least 50 ms. */
  readonly statementTimeout?: Duration | undefined;
  /**
   * Start also where two may hold a lock at once: Galera, several primaries, a read-only server or standby, a pooler that shares
   * connections among clients. Default false: `start` throws `LockConfigError`. For a cluster whose locks all go to one node.
   */
  readonly allowUnsafeTopology?: boolean | undefined;
}

/** How to get at a database server, and at the table of the locks. */
export interface ServerSettings {
  readonly dataSource: DataSource;
  readonly database: 'mysql' | 'postgres';
  readonly table: string;
  readonly synchronize: boolean;
  readonly allowUnsafeTopology: boolean;
  readonly terms: SessionTerms;
}

/** The options, checked. */
export interface DatabaseSettings extends ServerSettings {
  readonly fencing: boolean;
}

/** @throws LockConfigError for options that cannot work. */
export function readOptions(
  provider: string,
  options: TypeOrmSessionLockOptions,
  leastConnections: number,
): DatabaseSettings {
  const dataSource = readDataSource(provider, options);
  return {
    dataSource,
    database: databaseOf(provider, dataSource),
    table: readTable(provider, options.table),
    synchronize: readSwitch(provider, 'synchronize', options.synchronize),
    fencing: readSwitch(provider, 'fencing', options.fencing),
    allowUnsafeTopology: readSwitch(provider, 'allowUnsafeTopology', options.allowUnsafeTopology),
    terms: {
      guard: toMilliseconds(options.sessionGuard ?? '30s', 'sessionGuard', { min: 1_000 }),
      patience: toMilliseconds(options.statementTimeout ?? '2s', 'statementTimeout', { min: 50 }),
      maxConnections: readMaxConnections(provider, options.maxConnections ?? 10, leastConnections),
    },
  };
}

/** @throws LockConfigError for what is no DataSource. Told by its options: there may be two copies of TypeORM. */
export function readDataSource(provider: string, options: { readonly dataSource: DataSource }): DataSource {
  const type = propertyOf(propertyOf(propertyOf(options, 'dataSource'), 'options'), 'type');
  if (typeof type === 'string') return options.dataSource;
  throw new LockConfigError(`${provider}: "dataSource" must be a DataSource of TypeORM.`);
}

/** @throws LockConfigError for anything else, such as the text 'false' of an environment variable, which would be true. */
export function readSwitch(provider: string, option: string, value: unknown = false): boolean {
  if (typeof value === 'boolean') return value;
  throw new LockConfigError(`${provider}: "${option}" must be true or false.`);
}

/** @throws LockConfigError for what is no name of a table. */
export function readTable(provider: string, table: unknown = DEFAULT_TABLE): string {
  // A list of one name would pass for that name.
  if (typeof table === 'string' && isTableName(table)) return table;
  throw new LockConfigError(
    `${provider}: "table" must be a name, or a schema and a name, of at most 56 letters, digits and "_" each.`,
  );
}

/** @throws LockConfigError for a number that cannot work. */
export function readMaxConnections(provider: string, maxConnections: number, least: number): number {
  if (Number.isSafeInteger(maxConnections) && maxConnections >= least) return maxConnections;
  throw new LockConfigError(`${provider}: "maxConnections" must be a whole number from ${least} on.`);
}

function databaseOf(provider: string, dataSource: DataSource): DatabaseSettings['database'] {
  const { type } = dataSource.options;
  switch (type) {
    case 'mysql':
    case 'mariadb':
      return 'mysql';
    case 'postgres':
      return 'postgres';
    default:
      throw new LockConfigError(
        `${provider} works with MySQL, MariaDB and Postgres, not with "${type}", which has no such locks.`,
      );
  }
}
