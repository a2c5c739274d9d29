import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';

/**
 * The default for a constructor's first argument, which Nest omits if a user lists the class in "providers".
 *
 * @throws LockConfigError
 */
export function madeByNest(name: string): never {
  throw new LockConfigError(
    `${name} is listed in the "providers" of a module. Remove it there: DistributedLockModule provides it to every module in the application.`,
  );
}

/** @throws LockConfigError if the task is not a function, for example, because it was swapped with the options */
export function assertTask(caller: string, task: unknown): void {
  if (typeof task === 'function') return;
  throw new LockConfigError(
    `${caller} has no task: its second argument is ${shown(task)}, but must be a function. Write ${caller.replace('()', "('order:42', task, options)")}.`,
  );
}
