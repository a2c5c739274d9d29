import { LockConfigError } from '../../../api/errors.js';
import { lockCall, perform, type MethodCall } from '../method-call.js';
import { isIteration, isStream, refuseStream } from './streams.js';
import { iterated } from './iteration.js';

type Steps = ReturnType<typeof iterated>;

/**
 * The locked form of a plain function. Only running it shows what it returns, and it must not run before the lock is
 * held. So the caller decides: if it iterates over the result in the same tick as the call, as a loop does, it gets an
 * async generator's steps. Otherwise, it gets a promise for the result.
 *
 * No caller awaits the promise of a result that is iterated over, so only the steps report the run's errors.
 */
export function lockedUnknown(call: MethodCall, start: () => unknown): unknown {
  const state: Started = { isRunning: false, steps: undefined };
  const result = awaited(call, start, state);
  const begin = (): void => {
    if (state.isRunning) result.catch(() => undefined);
    else state.steps ??= iterated(call, start);
  };
  const forward = async (step: 'next' | 'return' | 'throw', value: unknown) => {
    begin();
    const given = state.steps ?? (await result);
    if (isIteration(given)) return given[step](value);
    const { name } = call.method;
    throw new LockConfigError(`${name} was iterated, but does not return an async generator: await its result.`);
  };
  return Object.assign(result, {
    next: (value: unknown) => forward('next', value),
    return: (value: unknown) => forward('return', value),
    throw: (error: unknown) => forward('throw', error),
    [Symbol.asyncIterator]: () => {
      begin();
      return result;
    },
  });
}

/** How a call started: as a run, or through its consumer's steps. */
interface Started {
  isRunning: boolean;
  steps: Steps | undefined;
}

/**
 * The result of the function, run under the lock. An async generator that it returns has not started, so its steps
 * acquire the lock again.
 */
async function awaited(call: MethodCall, start: () => unknown, state: Started): Promise<unknown> {
  // The caller may iterate until the end of this tick.
  await Promise.resolve();
  if (state.steps) return state.steps;
  state.isRunning = true;
  const locked = await lockCall(call);
  if (!locked.lock) return locked.instead;
  const { lock, recorded } = locked;
  const { name } = call.method;
  const task = async (): Promise<unknown> => {
    const given = start();
    const result = await given;
    if (!isStream(result)) return result;
    // If the result is a promise for a generator, the function has already done work under the lock. A locked method
    // below this one returns a result that is both a promise and a generator. A tick's run has already started.
    if (recorded || !isIteration(given) || !isIteration(result)) refuseStream(name, result);
    else if (lock.holds.some(({ grant }) => grant.request.minHold > 0)) {
      throw new LockConfigError(
        `${name} returns an async generator that was awaited before being iterated. Awaiting it locked and released its key, which "minHold" retains: iterate the result without await, or compile for ES2018 or later.`,
      );
    }
    throw new NotStarted(result);
  };
  try {
    return await perform(locked, task);
  } catch (error) {
    if (error instanceof NotStarted) return iterated(call, () => error.steps);
    throw error;
  }
}

/** Thrown to release the lock of a function that only returned a generator. */
class NotStarted extends Error {
  constructor(readonly steps: unknown) {
    super('The generator has not started.');
  }
}
