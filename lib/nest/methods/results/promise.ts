import type { GrantedLock } from '../../../core/hold/granted-lock.js';
import { runGuarded } from '../../../core/hold/guarded-task.js';
import type { Method } from '../../../decoration/decorated-method.js';
import type { DeclaredMethod } from '../declared-method.js';
import { type CallLock, lockCall } from '../method-call.js';
import { keepRequestStreams, refuseStream } from '../streams.js';

/** The locked form of an async method. */
export function lockedPromise(method: DeclaredMethod, original: Method): Method {
  const refuse = (result: unknown): void => {
    refuseStream(method.name, result);
  };
  return async function (this: unknown, ...args) {
    keepRequestStreams(args);
    const call = await lockCall(method, this, args);
    return call.lock ? perform(call, () => original.apply(this, args), refuse) : call.instead;
  };
}

/** Runs a task under the lock of its call, which is released at its end. @param check throws for a result that the method must not give */
export function perform(
  { lock, onLost, run }: Extract<CallLock, { lock: GrantedLock }>,
  task: () => unknown,
  check: (result: unknown) => void,
): Promise<unknown> {
  if (!run) return runGuarded(lock, task, onLost, check);
  const checked = async (): Promise<unknown> => {
    const result = await task();
    check(result);
    return result;
  };
  return runGuarded(lock, run.recorded(checked), onLost);
}
