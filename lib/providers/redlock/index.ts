export { RedlockLockProvider } from './redlock-lock-provider.js';
export type { RedlockNodeOptions, RedlockLockProviderOptions } from './redlock-options.js';
