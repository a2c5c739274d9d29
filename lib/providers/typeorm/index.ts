export {
  TypeOrmAdvisoryLockProvider,
  type TypeOrmAdvisoryLockProviderOptions,
  TypeOrmRowLockProvider,
  type TypeOrmRowLockProviderOptions,
  type TypeOrmSessionLockOptions,
  TypeOrmVersionLockProvider,
  type TypeOrmVersionLockProviderOptions,
} from './providers.js';
export type { TypeOrmLockOptions } from './data-source.js';
export { RetryOnConflict } from './entity/retry-on-conflict.decorator.js';
export type { RetryDecorator, RetryOnConflictOptions } from './entity/retry-on-conflict.decorator.js';
export { saveFenced } from './entity/save-fenced.js';
export type { GuardColumn, SaveFencedOptions } from './entity/save-fenced.js';
export { VersionConflictError } from '../../api/errors.js';
export { LockTables1700000000000 } from './lock-tables-migration.js';
export { entityManagerOf } from './entity-transaction.js';
