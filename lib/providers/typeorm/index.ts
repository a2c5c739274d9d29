export {
  TypeOrmAdvisoryLockProvider,
  type TypeOrmAdvisoryLockProviderOptions,
} from './advisory/advisory-lock-provider.js';
export type { TypeOrmSessionLockOptions } from './database-options.js';
export { entityManagerOf } from './row/entity-manager-of.js';
export { TypeOrmRowLockProvider } from './row/row-lock-provider.js';
export type { TypeOrmRowLockProviderOptions } from './row/row-lock-options.js';
