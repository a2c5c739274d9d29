import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Runs a function in no caller's async context: what it starts outlives the call in whose context it was started, and would keep alive
 * that call's locks and stores, or run under them.
 */
export const detached = AsyncLocalStorage.snapshot();
