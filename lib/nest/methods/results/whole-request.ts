import { LockConfigError } from '../../../api/errors.js';
import { runGuarded } from '../../../core/hold/guarded-task.js';
import type { Method } from '../../../decoration/decorated-method.js';
import type { DeclaredMethod } from '../declared-method.js';
import { type RequestLock, requestLockOf, runHandler } from '../request-context.js';
import { keepRequestStreams } from './streams.js';

/** A handler whose lock `LockRequestInterceptor` acquires. The handler refuses to run without it. */
export function underRequestLock(method: DeclaredMethod, original: Method): Method {
  const { name, kind } = method;
  return function (this: unknown, ...args) {
    const held = requestLockOf(method);
    if (!held) {
      // Continuing would mean running without the lock.
      throw new LockConfigError(
        `${name} has around: 'request', but LockRequestInterceptor did not run here: make sure that Nest calls the method as a handler. In a Nest 11 gateway, or a controller in a hybrid application without inheritAppConfig, add @UseInterceptors(LockRequestInterceptor).`,
      );
    }
    keepRequestStreams(args);
    const run = () => runHandler(() => original.apply(this, args));
    return kind === 'promise' || kind === 'unknown' ? untilSettled(held, run) : run();
  };
}

// A pipeline may end before its handler, for example because of a timeout in an interceptor. The handler enters the lock
// itself, which keeps the lock held until the handler is done.
async function untilSettled({ plan, lock }: RequestLock, run: () => unknown): Promise<unknown> {
  return runGuarded(plan.service.manager.acquirePlanned(plan.lock, lock.keys, { within: lock }), run, 'ignore');
}
