import { LockConfigError } from '../../api/errors.js';
import { isIteration } from './stream.js';

type Steps = AsyncGenerator<unknown, unknown, unknown>;

/**
 * The result of a call of a plain function. Only a run of the function shows what it returns, and it must not run before the lock is held.
 * So the caller decides: it gets `iterate()` if it iterates the result in the tick of the call, as a loop does, and else the promise
 * of `run()`.
 *
 * Nobody awaits the promise of a result that is iterated, so an error of the run then comes with the steps alone.
 *
 * @param name of the method, for messages
 */
export function lockedResult(name: string, run: () => Promise<unknown>, iterate: () => Steps): Promise<unknown> {
  let isRunning = false;
  let steps: Steps | undefined;
  const result = Promise.resolve().then(() => {
    if (steps) return steps;
    isRunning = true;
    return run();
  });
  const begin = (): void => {
    if (isRunning) result.catch(() => undefined);
    else steps ??= iterate();
  };
  const forward = (method: 'next' | 'return' | 'throw') => async (value: unknown) => {
    begin();
    const given = steps ?? (await result);
    if (isIteration(given)) return given[method](value);
    throw new LockConfigError(`${name} was iterated, but returns no async generator: await its result.`);
  };
  return Object.assign(result, {
    next: forward('next'),
    return: forward('return'),
    throw: forward('throw'),
    [Symbol.asyncIterator]: () => {
      begin();
      return result;
    },
  });
}
