import { type ConfiguredDuration, toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import { FAMILIES, onWriter } from './table/family.js';
import { assertTableName, DEFAULT_TABLE } from './table/lock-schema.js';
import type { SqlSource } from './sources/source.js';

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

/** The options, checked; times in ms. */
export type DatabaseSettings = ReturnType<typeof readOptions>;
export type SessionLockSettings = ReturnType<typeof readSessionOptions>;

/**
 * @param connections how many there must be, and how many there are unless noted otherwise
 * @throws LockConfigError for options that cannot work
 */
export function readOptions(
  provider: string,
  options: SqlLockOptions & { readonly maxConnections?: number | undefined },
  source: SqlSource,
  connections: { readonly least: number; readonly usual: number },
) {
  const { table = DEFAULT_TABLE, maxConnections = connections.usual } = options;
  assertTableName(provider, table);
  const allowUnsafeTopology = readSwitch(provider, 'allowUnsafeTopology', options.allowUnsafeTopology);
  return {
    source,
    family: allowUnsafeTopology ? FAMILIES[source.database] : onWriter(source.database),
    table,
    synchronize: readSwitch(provider, 'synchronize', options.synchronize),
    allowUnsafeTopology,
    commandTimeout: toMilliseconds(options.commandTimeout ?? '2s', 'commandTimeout', { min: 50 }),
    maxConnections: readCount(provider, 'maxConnections', maxConnections, connections.least),
  };
}

/** @throws LockConfigError for options that cannot work */
export function readSessionOptions(
  provider: string,
  options: SqlSessionLockOptions,
  source: SqlSource,
  leastConnections: number,
) {
  return {
    ...readOptions(provider, options, source, { least: leastConnections, usual: 10 }),
    guard: toMilliseconds(options.sessionGuard ?? '30s', 'sessionGuard', { min: 1_000 }),
    fencing: readSwitch(provider, 'fencing', options.fencing),
  };
}

/** @throws LockConfigError for a number that cannot work */
export function readCount(provider: string, option: string, count: number, least: number): number {
  if (Number.isSafeInteger(count) && count >= least) return count;
  throw new LockConfigError(
    `${provider}: "${option}" must be a whole number from ${least} on, and is ${shown(count)}.`,
  );
}

/** @throws LockConfigError for anything but a boolean: the text 'false' of an environment variable would count as true */
function readSwitch(provider: string, option: string, value: unknown = false): boolean {
  if (typeof value === 'boolean') return value;
  throw new LockConfigError(`${provider}: "${option}" must be true or false, and is ${shown(value)}.`);
}
