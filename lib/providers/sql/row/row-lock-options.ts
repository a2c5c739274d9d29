import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import type { SqlSource } from '../sources/source.js';
import { readCount, readSessionOptions, type SqlSessionLockOptions } from '../options.js';

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

/** The options, checked; times in ms. */
export type RowLockSettings = ReturnType<typeof readRowLockOptions>;

/** @throws LockConfigError for options that cannot work */
export function readRowLockOptions(provider: string, options: SqlRowLockOptions, source: SqlSource) {
  const settings = readSessionOptions(provider, options, source, 1);
  const { maxConnections } = settings;
  const { nestedConnections = Math.min(1, maxConnections - 1), connectionInitSql = [] } = options;
  if (readCount(provider, 'nestedConnections', nestedConnections, 0) >= maxConnections) {
    throw new LockConfigError(
      `${provider}: "nestedConnections" must be less than "maxConnections", which is ${maxConnections}, and is ${nestedConnections}.`,
    );
  }
  const given: unknown = connectionInitSql;
  if (!Array.isArray(connectionInitSql) || !connectionInitSql.every((sql) => typeof sql === 'string' && sql !== '')) {
    const initSql = typeof given === 'string' ? 'a text: write it in brackets' : shown(given);
    throw new LockConfigError(`${provider}: "connectionInitSql" must be a list of statements, and is ${initSql}.`);
  }
  return { ...settings, nestedConnections, connectionInitSql };
}
