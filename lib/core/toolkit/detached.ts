import { AsyncResource } from 'node:async_hooks';

const NO_CONTEXT = new AsyncResource('nestjs-distributed-lock');

/**
 * Runs a function in no caller's async context: what it starts outlives the call in whose context it was started, and would keep alive
 * that call's locks and stores, or run under them.
 *
 * `AsyncLocalStorage.snapshot()` does the same, and costs 85 ns a call instead of 7 on Node 20.
 */
export function detached<A extends unknown[], R>(work: (...args: A) => R, ...args: A): R {
  return NO_CONTEXT.runInAsyncScope(work, undefined, ...args);
}
