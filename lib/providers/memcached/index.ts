export { MemcachedLockProvider } from './memcached-lock-provider.js';
export type { MemcachedLockProviderOptions } from './memcached-options.js';
