import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';

/** For the first argument of the constructor of a class that Nest was told to make, which passes none. @throws LockConfigError */
export function madeByNest(name: string): never {
  throw new LockConfigError(
    `${name} is in the "providers" of a module: remove it there. DistributedLockModule provides it to every module of the application.`,
  );
}

/** @throws LockConfigError for a task that is no function, such as options that were given instead of it */
export function assertTask(caller: string, task: unknown): void {
  if (typeof task === 'function') return;
  throw new LockConfigError(
    `${caller} has no task: its second argument is ${shown(task)}, but must be a function. Write ${caller.replace('()', "('order:42', task, options)")}.`,
  );
}
