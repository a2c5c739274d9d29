import { performance } from 'node:perf_hooks';
import process from 'node:process';
import timers from 'node:timers';

/*
 * The timers and the monotonic clock of Node, also under fake timers of Jest, Vitest, Sinon or `node:test`. On fake ones, a call without
 * competitors would wait until the test goes on, its lease would seem to end in the past, and a real server would free the lock meanwhile.
 * Constants, because these tools replace properties of Node's modules.
 */
export const setTimeout = original(timers, 'setTimeout');
export const clearTimeout = original(timers, 'clearTimeout');
export const setImmediate = original(timers, 'setImmediate');
export const nextTick = original(process, 'nextTick');

// The method of the prototype, because a fake one is a property of the object. Bun has it on the object alone.
const { now = performance.now.bind(performance) } = Object.getPrototypeOf(performance) as {
  readonly now?: (this: object) => number;
};

/** Monotonic milliseconds. */
export function monotonicNow(): number {
  return now.call(performance);
}

/** Fake timers may be older than this module. Those of Jest, Vitest and Sinon have one engine, whose fakes keep what they replace. */
function original<M extends object, N extends keyof M & string>(module: M, name: N): M[N] {
  const { clock } = module[name] as { readonly clock?: Readonly<Record<string, M[N] | undefined>> };
  return clock?.[`_${name}`] ?? module[name];
}
