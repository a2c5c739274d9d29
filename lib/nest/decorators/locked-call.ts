import type { Observable } from 'rxjs';
import { LockConfigError } from '../../api/errors.js';
import { runGuarded } from '../../core/hold/guarded-task.js';
import { MethodCall } from './method-call.js';
import { lockedIteration } from './locked-iteration.js';
import type { LockedMethod } from './locked-method.js';
import { lockedObservable } from './locked-observable.js';
import { type RequestLock, requestLockOf } from '../transports/request-context.js';
import { isStream } from './stream.js';

type Method = (...args: unknown[]) => unknown;

/** How a method gives its result, which decides how long its lock is held. */
export type ResultKind = 'promise' | 'observable' | 'iteration';

/** The function that replaces a decorated method in its class. */
export function lockedCall(method: LockedMethod, original: Method, kind: ResultKind): Method {
  return method.isAroundRequest ? underRequest(method, original, kind) : CALLS[kind](method, original);
}

const CALLS: Record<ResultKind, (method: LockedMethod, original: Method) => Method> = {
  promise: (method, original) => {
    const refuse = (result: unknown): void => {
      refuseStream(method, result);
    };
    return async function (this: unknown, ...args) {
      const call = await new MethodCall(method, this, args).lock();
      return call.lock ? runGuarded(call.lock, () => original.apply(this, args), call.onLost, refuse) : call.instead;
    };
  },
  observable: (method, original) =>
    function (this: unknown, ...args) {
      return lockedObservable(
        async (signal) => new MethodCall(method, this, args).lock(signal),
        () => original.apply(this, args) as Observable<unknown>,
      );
    },
  iteration: (method, original) =>
    function (this: unknown, ...args) {
      return lockedIteration(
        async () => new MethodCall(method, this, args).lock(),
        () => original.apply(this, args) as AsyncGenerator,
      );
    },
};

/** A stream that outlives its method would be read without the lock, so the caller does not get it. */
function refuseStream(method: LockedMethod, result: unknown): void {
  if (!isStream(result)) return;
  throw new LockConfigError(
    `${method.name} returns a stream, which would be read after its lock is released: annotate the return type as Observable (imported without "type"), write an async generator, or use around: 'request' on a handler.`,
  );
}

/** The lock is taken by `LockInterceptor`; what is left to do is to insist on it. */
function underRequest(method: LockedMethod, original: Method, kind: ResultKind): Method {
  return function (this: unknown, ...args) {
    const held = requestLockOf(method);
    if (!held) {
      // Running on would mean running unlocked.
      throw new LockConfigError(
        `${method.name} has around: 'request', but LockInterceptor did not run for this call: call it as a handler. A gateway of Nest 11, and a controller of a hybrid application without inheritAppConfig, needs @UseInterceptors(LockInterceptor).`,
      );
    }
    const run = () => original.apply(this, args);
    return kind === 'promise' ? untilSettled(method, held, run) : run();
  };
}

// A pipeline may be over before its handler is, as under an interceptor with a timeout: an entry of the handler's own
// keeps the lock until it is done.
async function untilSettled(
  method: LockedMethod,
  { service, lock }: RequestLock,
  run: () => unknown,
): Promise<unknown> {
  return runGuarded(
    service.manager.acquirePlanned(method.planFor(service), lock.keys, { within: lock }),
    run,
    'ignore',
  );
}
