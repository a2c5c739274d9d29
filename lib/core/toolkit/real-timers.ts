import { performance } from 'node:perf_hooks';
import process from 'node:process';
import timers from 'node:timers';

/*
 * Node's real timers and monotonic clock, even if a test uses fake timers from Jest, Vitest, Sinon, or `node:test`.
 * With fake timers, even an uncontended call would hang until the test advances the clock, and its lease on a real
 * server would expire without being renewed.
 *
 * These tools replace properties of Node's modules, so the functions are copied to constants here.
 */
export const setTimeout = original(timers, 'setTimeout');
export const clearTimeout = original(timers, 'clearTimeout');
export const setImmediate = original(timers, 'setImmediate');
export const nextTick = original(process, 'nextTick');

// Reads the prototype, because fakes are set on the object itself. In Bun, only the object has the property.
const { now = performance.now.bind(performance) } = Object.getPrototypeOf(performance) as {
  readonly now?: (this: object) => number;
};

/** Monotonic milliseconds. */
export function monotonicNow(): number {
  return now.call(performance);
}

/**
 * Fake timers may be installed before this module is loaded. Jest, Vitest, and Sinon use the same engine, whose fakes
 * keep the originals.
 */
function original<M extends object, N extends keyof M & string>(module: M, name: N): M[N] {
  const { clock } = module[name] as { readonly clock?: Readonly<Record<string, M[N] | undefined>> };
  return clock?.[`_${name}`] ?? module[name];
}
