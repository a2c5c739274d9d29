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
import { FAMILIES, type SqlSource } from './connection/databases.js';
import type { Family } from './connection/dialect.js';
import { tableName } from './table/lock-schema.js';

/** The options of all locks in a database. */
export interface SqlLockOptions {
  /** The table of the locks and of the fencing counters, `name` or `schema.name`. Default `distributed_lock`. */
  readonly table?: string;
  /** Whether to create the table when it does not exist; otherwise a migration must. Default false. */
  readonly synchronize?: boolean | undefined;
  /** How long the database may be silent after a statement of ours, in ms, before its outcome counts as unknown. Default 2 s, at least 50 ms and at most 24.8 days. */
  readonly commandTimeout?: ConfiguredDuration | undefined;
  /**
   * Whether to use a server on which two callers may hold a lock at the same time: Galera, several primaries, a read-only server or standby,
   * a pooler that shares connections among clients. Default false. Such a server is a `LockConfigError` then. For a cluster whose locks all go
   * to one node.
   */
  readonly allowUnsafeTopology?: boolean | undefined;
}

/** Locks that live as long as a connection. */
export interface SqlSessionLockOptions extends SqlLockOptions {
  /**
   * After how much silence the server frees the locks of a process that is frozen or cut off. A heartbeat each third of it. The COMMIT of what
   * was written through `sqlClientOf(lock)` or `entityManagerOf(lock)` may take as long; then its outcome is unknown, and the call
   * rejects with `LockLostError`, reason `commit-unknown`. Default 30 s, at least 1 s and at most 24.8 days.
   */
  readonly sessionGuard?: ConfiguredDuration | undefined;
  /**
   * How many connections this process may have for locks. Default 10. Up to four more, opened when they are needed, make rows, count
   * tokens and end other connections.
   */
  readonly maxConnections?: number | undefined;
  /** Fencing tokens, by a counter that is committed at each grant. Default false; costs one commit a lock. */
  readonly fencing?: boolean | undefined;
}

/** `maxConnections` counts one for each key that is held or waited for. */
export interface SqlRowLockOptions extends SqlSessionLockOptions {
  /**
   * How many of `maxConnections` are kept for callers that hold a row lock already. Default 1: two locks inside each other always
   * progress. Locks that are nested `d` deep, and calls that lock `d` keys, need `d - 1`.
   */
  readonly nestedConnections?: number | undefined;
  /**
   * Statements that are sent first on each connection of the locks, such as `SET TIME ZONE 'UTC'`: what the application sets on the
   * connections of its own pool, and expects of the one that `sqlClientOf(lock)` or `entityManagerOf(lock)` gives. Isolation and time
   * limits are set after them. Default none; one that the server refuses fails the boot.
   */
  readonly connectionInitSql?: readonly string[] | undefined;
}

export interface SqlVersionLockOptions extends SqlLockOptions {
  /** How many connections this process has for locks, besides one for control. Each is used for one statement. Default 4. */
  readonly maxConnections?: number | undefined;
}

/** The options of all kinds of locks in a database, because applications share an object of options among their kinds. */
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
  // One to hold on, one to wait on.
  advisory: { maxConnections: count(2).or(10) },
};

export type SqlKind = keyof typeof OF_KIND;

/** The options, checked and complete; times in ms. */
export interface SqlSettings extends Omit<Settings<typeof OPTIONS>, 'nestedConnections'> {
  readonly source: SqlSource;
  readonly family: Family;
  readonly nestedConnections: number;
}

/**
 * @param address the options that say where the database is, besides those of the locks
 * @throws LockConfigError for options that cannot work
 */
export function readSqlOptions(
  owner: Owner,
  kind: SqlKind,
  options: object,
  address: Readonly<Record<string, Option<unknown>>>,
  sourceOf: () => SqlSource,
): SqlSettings {
  const all = Object.entries(read(owner, options, { ...address, ...OPTIONS, ...OF_KIND[kind] }));
  // The address may have a password, and what a backend keeps can be printed.
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
