import { LockConfigError } from '../../../api/errors.js';
import { runGuarded } from '../../../core/hold/guarded-task.js';
import type { MethodCall } from '../method-call.js';
import { type RequestLock, requestLockOf, runHandler } from '../request-context.js';

/** A handler whose lock `LockRequestInterceptor` acquires. The handler refuses to run without it. */
export function underRequestLock({ method }: MethodCall, start: () => unknown): unknown {
  const held = requestLockOf(method);
  if (!held) {
    // Continuing would mean running without the lock.
    throw new LockConfigError(
      `${method.name} has around: 'request', but LockRequestInterceptor did not run here: make sure that Nest calls the method as a handler. In a Nest 11 gateway, or a controller in a hybrid application without inheritAppConfig, add @UseInterceptors(LockRequestInterceptor).`,
    );
  }
  const run = () => runHandler(start);
  return method.kind === 'promise' || method.kind === 'unknown' ? untilSettled(held, run) : run();
}

// A pipeline may end before its handler, for example because of a timeout in an interceptor. The handler enters the
// lock itself, which keeps the lock held until the handler is done.
async function untilSettled({ plan, lock }: RequestLock, run: () => unknown): Promise<unknown> {
  return runGuarded(plan.service.manager.acquirePlanned(plan.lock, lock.keys, { within: lock }), run, 'ignore');
}
