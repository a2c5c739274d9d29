export { SqlAdvisoryLockProvider, type SqlAdvisoryLockProviderOptions } from './advisory/advisory-lock-provider.js';
export type { SqlConnectionOptions, SqlServerSettings } from './drivers.js';
export { lockTablesSql, type LockTablesOptions } from './table/lock-schema.js';
export type { SqlLockOptions, SqlRowLockOptions, SqlSessionLockOptions, SqlVersionLockOptions } from './options.js';
export { SqlRowLockProvider, type SqlRowLockProviderOptions } from './row/row-lock-provider.js';
export { sqlClientOf, type SqlClient } from './row/sql-client-of.js';
export { SqlVersionLockProvider, type SqlVersionLockProviderOptions } from './version/version-lock-provider.js';
