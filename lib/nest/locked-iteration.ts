import type { GrantedLock } from '../engine/granted-lock.js';
import { endGuarded, type Outcome } from '../engine/guarded-task.js';
import { runUnder } from '../engine/owner-context.js';
import type { CallLock } from './call-lock.js';

/** An async generator that holds its lock from the first `next()` until it returns, throws or is left. */
export async function* lockedIteration(
  acquire: () => Promise<CallLock>,
  start: () => AsyncGenerator,
): AsyncGenerator<unknown, unknown, unknown> {
  const call = await acquire();
  if (!call.lock) return call.instead;
  const { lock, onLost } = call;
  let outcome: Outcome<unknown> | undefined;
  try {
    outcome = { status: 'fulfilled', value: yield* eachStepUnder(lock, start) };
  } catch (reason) {
    outcome = { status: 'rejected', reason };
  } finally {
    // A consumer that leaves its loop early runs nothing but this.
    if (!outcome) await lock.end(false);
  }
  return endGuarded(lock, outcome, onLost);
}

// The body of a generator runs in the context of whoever asks for the next value, so each step enters the lock's.
function eachStepUnder(lock: GrantedLock, start: () => AsyncGenerator): AsyncIterable<unknown, unknown, unknown> {
  const generator = runUnder(lock, start);
  return {
    [Symbol.asyncIterator]: () => ({
      next: (value) => runUnder(lock, () => generator.next(value)),
      return: (value) => runUnder(lock, () => generator.return(value)),
      throw: (error) => runUnder(lock, () => generator.throw(error)),
    }),
  };
}
