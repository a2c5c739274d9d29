import type { GrantedLock } from '../../core/hold/granted-lock.js';
import { endGuarded, type Outcome } from '../../core/hold/guarded-task.js';
import type { CallLock } from './method-call.js';

/** An async generator that holds its lock from the first `next()` until it returns, throws or is left. */
export async function* lockedIteration(
  acquire: () => Promise<CallLock>,
  start: () => AsyncGenerator,
): AsyncGenerator<unknown, unknown, unknown> {
  const call = await acquire();
  if (!call.lock) return isAsyncIterable(call.instead) ? yield* call.instead : call.instead;
  const { lock, onLost } = call;
  let outcome: Outcome<unknown> | undefined;
  try {
    outcome = { status: 'fulfilled', value: yield* eachStepUnder(lock, start, onLost === 'throw-early') };
  } catch (reason) {
    outcome = { status: 'rejected', reason };
  } finally {
    // A consumer that leaves its loop early runs nothing but this.
    if (!outcome) await lock[Symbol.asyncDispose]();
  }
  return endGuarded(lock, outcome, onLost);
}

// The body of a generator runs in the context of the code that asks for the next value, so each step enters the lock's.
function eachStepUnder(
  lock: GrantedLock,
  start: () => AsyncGenerator,
  throwEarly: boolean,
): AsyncIterable<unknown, unknown, unknown> {
  const generator = lock.surround(start);
  const next = (value: unknown) => {
    const lost = throwEarly ? lock.lostError : undefined;
    // Thrown into the body and not past it, so that the body can still clean up.
    return lost ? generator.throw(lost) : generator.next(value);
  };
  return {
    [Symbol.asyncIterator]: () => ({
      next: (value) => lock.surround(() => next(value)),
      return: (value) => lock.surround(() => generator.return(value)),
      throw: (error) => lock.surround(() => generator.throw(error)),
    }),
  };
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown, unknown, unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}
