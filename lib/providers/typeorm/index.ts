export { RetryOnConflict } from './entity/retry-on-conflict.decorator.js';
export type { RetryDecorator, RetryOnConflictOptions } from './entity/retry-on-conflict.decorator.js';
export { saveFenced } from './entity/save-fenced.js';
export type { GuardColumn, SaveFencedOptions } from './entity/save-fenced.js';
export { VersionConflictError } from './entity/version-conflict-error.js';
export { entityManagerOf } from './row/entity-manager-of.js';
export { TypeOrmRowLockProvider } from './row/row-lock-provider.js';
export type { TypeOrmRowLockProviderOptions } from './row/row-lock-options.js';
