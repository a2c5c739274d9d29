import { LockConfigError } from '../../../api/errors.js';
import type { GrantedLock } from '../../../core/hold/granted-lock.js';
import { endGuarded, endUnstarted, type Outcome } from '../../../core/hold/guarded-task.js';
import { leaveOnAbort } from '../../../core/toolkit/abort-listeners.js';
import { setImmediate } from '../../../core/toolkit/real-timers.js';
import { type CallLock, lockCall, type MethodCall } from '../method-call.js';
import { isIterable } from './streams.js';

type Steps = AsyncGenerator<unknown, unknown, unknown>;

/**
 * An async generator that holds its lock from the first `next()` until it returns, throws, or is abandoned.
 *
 * After a `return()` during a step, JavaScript lets a generator continue to its next `yield`. Such a `return()`
 * therefore ends the wait for the lock, or aborts the lock's signal, so that the body can end.
 *
 * @param start is called under the lock and returns the iterable
 */
export function iterated(call: MethodCall, start: () => unknown): Steps {
  const leaving = new AbortController();
  const { name } = call.method;
  const steps = eachStep(call, start, leaving.signal);
  const next = steps.next.bind(steps);
  const fail = steps.throw.bind(steps);
  const leave = steps.return.bind(steps);
  let running = 0;
  const counted = (step: Promise<IteratorResult<unknown, unknown>>) => {
    running += 1;
    return step.finally(() => {
      running -= 1;
    });
  };
  return Object.assign(steps, {
    next: (value: unknown) => counted(next(value)),
    throw: (error: unknown) => counted(fail(error)),
    return: (value: unknown) => {
      if (running > 0) leaving.abort(new DOMException(`The consumer of ${name} stopped iterating.`, 'AbortError'));
      return leave(value);
    },
  });
}

async function* eachStep(call: MethodCall, start: () => unknown, leaving: AbortSignal): Steps {
  let locked: CallLock;
  try {
    locked = await lockCall(call, leaving);
  } catch (error) {
    if (isEndBy(leaving, error)) return undefined;
    throw error;
  }
  if (!locked.lock) return isIterable(locked.instead) ? yield* locked.instead : locked.instead;
  const { lock, onLost } = locked;
  if (leaving.aborted) {
    await lock.releaseAfterTask(true);
    return undefined;
  }
  const lost = lock.lostError;
  if (lost) return endUnstarted(lock, lost, onLost);
  let outcome: Outcome<unknown> | undefined;
  try {
    const given = lock.surround(start);
    if (!isIterable(given)) {
      await given;
      throw new LockConfigError(
        `${call.method.name} was iterated, but does not return an async generator: await its result.`,
      );
    }
    outcome = { status: 'fulfilled', value: yield* eachStepUnder(lock, given, leaving) };
  } catch (reason) {
    if (isEndBy(leaving, reason)) {
      // The step is incomplete, so a row lock must roll back. The release below waits for this one.
      void lock.releaseAfterTask(true);
      return undefined;
    }
    outcome = { status: 'rejected', reason };
  } finally {
    // When a consumer leaves its loop early, only this method runs.
    if (!outcome) await lock[Symbol.asyncDispose]();
  }
  return endGuarded(lock, outcome, onLost);
}

// A generator's body runs in the async context of the code that requests the next value, so each step enters the lock's
// context.
function eachStepUnder(
  lock: GrantedLock,
  given: AsyncIterable<unknown, unknown, unknown>,
  leaving: AbortSignal,
): AsyncIterable<unknown, unknown, unknown> {
  // Async generators, including compiled ones, have all three methods.
  const generator = lock.surround(() => given[Symbol.asyncIterator]()) as Steps;
  let isStepping = false;
  const step = async (run: () => Promise<IteratorResult<unknown, unknown>>) => {
    isStepping = true;
    try {
      return await lock.surround(run);
    } finally {
      isStepping = false;
    }
  };
  const leave = () => {
    lock.abort(leaving.reason);
    // For other iterators, such as a PubSub's, calling return() ends the step. The body gets time to end first, because
    // return() interrupts code that esbuild compiles for ES2017.
    setImmediate(() => {
      if (isStepping) void lock.surround(async () => generator.return(undefined)).catch(() => undefined);
    });
  };
  leaveOnAbort(leaving, { leave });
  return {
    [Symbol.asyncIterator]: () => ({
      next: (value) => step(async () => generator.next(value)),
      return: (value) => lock.surround(() => generator.return(value)),
      throw: (error) => step(async () => generator.throw(error)),
    }),
  };
}

/**
 * Whether a wait or a body ended because its consumer left. That is not a failure, and no consumer is left to
 * handle it.
 */
function isEndBy(leaving: AbortSignal, error: unknown): boolean {
  return leaving.aborted && (error as { name?: unknown } | null | undefined)?.name === 'AbortError';
}
