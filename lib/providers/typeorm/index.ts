export {
  TypeOrmAdvisoryLockProvider,
  type TypeOrmAdvisoryLockProviderOptions,
} from './advisory/advisory-lock-provider.js';
export type { TypeOrmLockOptions, TypeOrmSessionLockOptions } from './options.js';
export { RetryOnConflict } from './entity/retry-on-conflict.decorator.js';
export type { RetryDecorator, RetryOnConflictOptions } from './entity/retry-on-conflict.decorator.js';
export { saveFenced } from './entity/save-fenced.js';
export type { GuardColumn, SaveFencedOptions } from './entity/save-fenced.js';
export { VersionConflictError } from '../../api/errors.js';
export { LockRecords1700000000001, LockTables1700000000000 } from './lock-tables-migration.js';
export type { PurgeOptions } from './purge.js';
export { entityManagerOf } from './row/entity-manager-of.js';
export { RowLockBackend } from './row/row-lock-backend.js';
export { TypeOrmRowLockProvider } from './row/row-lock-provider.js';
export type { TypeOrmRowLockProviderOptions } from './row/row-lock-options.js';
export { VersionLockBackend } from './version/version-lock-backend.js';
export { TypeOrmVersionLockProvider } from './version/version-lock-provider.js';
export type { TypeOrmVersionLockProviderOptions } from './version/version-lock-options.js';
