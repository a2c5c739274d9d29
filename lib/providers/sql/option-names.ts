import type { OptionNames } from '../../core/toolkit/given-options.js';
import type { SqlRowLockOptions } from './row/row-lock-options.js';
import type { SqlVersionLockOptions } from './version/version-lock-options.js';

/** The options of all kinds of locks in a database, because applications share an object of options among their kinds. */
export const SQL_OPTIONS: OptionNames<SqlRowLockOptions & SqlVersionLockOptions> = {
  table: true,
  synchronize: true,
  commandTimeout: true,
  allowUnsafeTopology: true,
  maxConnections: true,
  sessionGuard: true,
  fencing: true,
  nestedConnections: true,
  connectionInitSql: true,
};
