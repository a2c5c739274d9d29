export type { SqlConnectionOptions, SqlServerSettings } from './drivers.js';
export type { SqlLockOptions, SqlRowLockOptions, SqlSessionLockOptions, SqlVersionLockOptions } from './options.js';
export {
  SqlAdvisoryLockProvider,
  type SqlAdvisoryLockProviderOptions,
  SqlRowLockProvider,
  type SqlRowLockProviderOptions,
  SqlVersionLockProvider,
  type SqlVersionLockProviderOptions,
} from './providers.js';
export { sqlClientOf, type SqlClient } from './row/lent-transaction.js';
export { lockTablesSql, type LockTablesOptions } from './table/lock-schema.js';
