export { entityManagerOf } from './entity-manager-of.js';
export { TypeOrmRowLockProvider } from './row-lock-provider.js';
export type { TypeOrmRowLockProviderOptions } from './row-lock-options.js';
