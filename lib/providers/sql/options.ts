import type { ConfiguredDuration } from '../../api/duration.js';
import {
  count,
  duration,
  flag,
  type Option,
  type OptionTable,
  type Owner,
  read,
  refuse,
  secret,
  type Settings,
} from '../../core/toolkit/options.js';
import { FAMILIES } from './connection/databases.js';
import type { Family, SqlSource } from './connection/dialect.js';
import { tableName } from './table/lock-schema.js';

/** The options shared by all SQL locks. */
export interface SqlLockOptions {
  /** The table for locks and fencing counters, as `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string;
  /** Whether to create the table if it doesn't exist. Otherwise, a migration must create it. Default false. */
  readonly synchronize?: boolean | undefined;
  /**
   * How long the database may take to respond to a statement, in ms. After that, the outcome is unknown. At least
   * 50 ms and at most 24.8 days. Default 2 s.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
  /**
   * Whether to allow servers on which two callers may hold a lock at the same time: Galera, several primaries, a
   * read-only server or standby, or a pooler that shares connections among clients. Otherwise, such a server causes a
   * `LockConfigError`. Enable it for a cluster only if all locks go to the same node. Default false.
   */
  readonly allowUnsafeTopology?: boolean | undefined;
}

export interface SqlSessionLockOptions extends SqlLockOptions {
  /**
   * How long a frozen or disconnected process may be silent before the server frees its locks. Heartbeats are sent
   * every third of this interval. The COMMIT of writes made through `sqlClientOf(lock)` or `entityManagerOf(lock)` may
   * take just as long; after that, its outcome is unknown, and the call rejects with `LockLostError` (reason
   * `commit-unknown`). Default 30 s, at least 1 s and at most 24.8 days.
   */
  readonly sessionGuard?: ConfiguredDuration | undefined;
  /**
   * The maximum number of connections that this process uses for locks. Default 10. Up to four more are opened as
   * needed to create rows, generate tokens, and end other connections.
   */
  readonly maxConnections?: number | undefined;
  /**
   * Whether to issue fencing tokens from a counter that is committed with each grant. Costs one commit per lock.
   * Default false.
   */
  readonly fencing?: boolean | undefined;
}

/** Each key held or waited for counts toward `maxConnections`. */
export interface SqlRowLockOptions extends SqlSessionLockOptions {
  /**
   * How many of `maxConnections` are reserved for callers that already hold a row lock. Default 1, so two nested locks
   * can always make progress. Locks nested `d` levels deep, and calls that lock `d` keys, need `d - 1`.
   */
  readonly nestedConnections?: number | undefined;
  /**
   * Statements to run first on each connection used for locks, such as `SET TIME ZONE 'UTC'`: whatever the application
   * sets on its own connections and expects from `sqlClientOf(lock)` or `entityManagerOf(lock)`. The isolation level
   * and time limits are set afterward. If the server rejects one, the application fails to start. Default none.
   */
  readonly connectionInitSql?: readonly string[] | undefined;
}

export interface SqlVersionLockOptions extends SqlLockOptions {
  /**
   * How many connections this process uses for locks, besides a control connection. Each is used for one statement at a
   * time. Default 4.
   */
  readonly maxConnections?: number | undefined;
}

/** All SQL lock options combined, because applications use one options object for all kinds. */
const OPTIONS = {
  table: tableName(),
  synchronize: flag().or(false),
  commandTimeout: duration({ min: 50 }).or('2s'),
  allowUnsafeTopology: flag().or(false),
  maxConnections: count(1).or(10),
  sessionGuard: duration({ min: 1_000 }).or('30s'),
  fencing: flag().or(false),
  nestedConnections: count(0),
  connectionInitSql: secret<readonly string[]>('a list of statements: write it in brackets', (given) => {
    const isStatement = (sql: unknown) => typeof sql === 'string' && sql !== '';
    return Array.isArray(given) && given.every(isStatement) ? given : undefined;
  }).or([]),
} satisfies OptionTable<SqlRowLockOptions & SqlVersionLockOptions>;

const OF_KIND = {
  row: {},
  version: { maxConnections: count(1).or(4) } satisfies OptionTable<Pick<SqlVersionLockOptions, 'maxConnections'>>,
  // At least two: one to hold locks and one to wait.
  advisory: { maxConnections: count(2).or(10) },
};

export type SqlKind = keyof typeof OF_KIND;

/** The validated options. */
export interface SqlSettings extends Omit<Settings<typeof OPTIONS>, 'nestedConnections'> {
  readonly source: SqlSource;
  readonly family: Family;
  readonly nestedConnections: number;
}

/**
 * @param address the options that specify the database
 * @throws LockConfigError for invalid options
 */
export function readSqlOptions(
  owner: Owner,
  kind: SqlKind,
  options: object,
  address: Readonly<Record<string, Option<unknown>>>,
  sourceOf: () => SqlSource,
): SqlSettings {
  const all = Object.entries(read(owner, options, { ...address, ...OPTIONS, ...OF_KIND[kind] }));
  // Omit the address: it may contain a password, and a backend's settings may be printed.
  const settings = Object.fromEntries(all.filter(([name]) => !(name in address))) as Settings<typeof OPTIONS>;
  const { maxConnections, nestedConnections = Math.min(1, maxConnections - 1), allowUnsafeTopology } = settings;
  if (kind === 'row' && nestedConnections >= maxConnections) {
    const reason = `is ${nestedConnections}, but must be less than "maxConnections", which is ${maxConnections}.`;
    refuse(owner, 'nestedConnections', reason);
  }
  const source = sourceOf();
  const family = FAMILIES[source.database];
  const now = allowUnsafeTopology ? family.now : family.nowOnWriter;
  return { ...settings, source, family: { ...family, now }, nestedConnections };
}
