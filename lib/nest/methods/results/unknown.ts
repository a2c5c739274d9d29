import { LockConfigError } from '../../../api/errors.js';
import type { Method } from '../../../decoration/decorated-method.js';
import type { DeclaredMethod } from '../declared-method.js';
import { lockCall } from '../method-call.js';
import { isIteration, isStream, keepRequestStreams, refuseStream } from '../streams.js';
import { iterated } from './iteration.js';
import { perform } from './promise.js';

type Steps = ReturnType<typeof iterated>;

/**
 * The locked form of a plain function. Only a run of it shows what it returns, and it must not run before the lock is held. So the caller
 * decides: it gets the steps of an async generator if it iterates the result in the tick of the call, as a loop does, and else the promise of a
 * run.
 *
 * No caller awaits the promise of a result that is iterated, so an error of the run then comes with the steps alone.
 */
export function lockedUnknown(method: DeclaredMethod, original: Method): Method {
  const { name } = method;
  return function (this: unknown, ...args) {
    keepRequestStreams(args);
    let isRunning = false;
    let steps: Steps | undefined;
    const task = () => original.apply(this, args);
    const run = async (): Promise<unknown> => {
      // Until the end of this tick the caller may iterate.
      await Promise.resolve();
      if (steps) return steps;
      isRunning = true;
      return await awaited(method, this, args, task);
    };
    const result = run();
    const begin = (): void => {
      if (isRunning) result.catch(() => undefined);
      else steps ??= iterated(method, this, args, task);
    };
    const forward = async (step: 'next' | 'return' | 'throw', value: unknown) => {
      begin();
      const given = steps ?? (await result);
      if (isIteration(given)) return given[step](value);
      throw new LockConfigError(`${name} was iterated, but returns no async generator: await its result.`);
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
  };
}

/** The result of the function, run under the lock. An async generator that it returns has not begun, so its steps lock again. */
async function awaited(
  method: DeclaredMethod,
  self: unknown,
  args: readonly unknown[],
  run: () => unknown,
): Promise<unknown> {
  const call = await lockCall(method, self, args);
  if (!call.lock) return call.instead;
  const { lock } = call;
  let given: unknown;
  const task = () => (given = run());
  const check = (result: unknown): void => {
    if (!isStream(result)) return;
    // The function has worked under the lock for a promise of a generator. The result of a locked method below this one is
    // both, and a run for a tick has begun with the call.
    if (call.run || !isIteration(given) || !isIteration(result)) refuseStream(method.name, result);
    else if (lock.holds.some(({ grant }) => grant.keepUntil > 0)) {
      throw new LockConfigError(
        `${method.name} returns an async generator, which was awaited before it was iterated. That locked and released its key, and "minHold" now keeps it: iterate the result without await, or compile for ES2018 or later.`,
      );
    } else throw new NotBegun(result);
  };
  try {
    return await perform(call, task, check);
  } catch (error) {
    if (error instanceof NotBegun) return iterated(method, self, args, () => error.steps);
    throw error;
  }
}

/** Ends the lock of a function that has done nothing but return a generator. */
class NotBegun extends Error {
  constructor(readonly steps: unknown) {
    super('The generator has not begun.');
  }
}
