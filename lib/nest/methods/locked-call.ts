import { from, isObservable, mergeMap, type Observable, of } from 'rxjs';
import { LockConfigError } from '../../api/errors.js';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import { runGuarded } from '../../core/hold/guarded-task.js';
import type { ResultKind } from '../../decoration/decorated-method.js';
import { serviceOf } from '../service/service-of.js';
import { lockedIteration } from './locked-iteration.js';
import type { LockedMethod } from './locked-method.js';
import { lockedObservable } from './locked-observable.js';
import { lockedResult } from './locked-result.js';
import { type CallLock, MethodCall } from './method-call.js';
import { keepRequestStreams } from './request-stream.js';
import { requestHandledBy, type RequestLock, requestLockOf } from './request-context.js';
import { isIteration, isStream } from './stream.js';

type Method = (...args: unknown[]) => unknown;

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
      keepRequestStreams(args);
      const call = await callOf(method, this, args).lock();
      return call.lock ? perform(call, () => original.apply(this, args), refuse) : call.instead;
    };
  },
  observable: (method, original) =>
    function (this: unknown, ...args) {
      keepRequestStreams(args);
      return lockedObservable(
        async (signal) => callOf(method, this, args).lock(signal),
        () => flattened(original.apply(this, args)),
      );
    },
  iteration: (method, original) =>
    function (this: unknown, ...args) {
      keepRequestStreams(args);
      return iterated(method, this, args, () => original.apply(this, args));
    },
  unknown: (method, original) =>
    function (this: unknown, ...args) {
      keepRequestStreams(args);
      const run = () => original.apply(this, args);
      return lockedResult(
        method.name,
        () => awaited(method, this, args, run),
        () => iterated(method, this, args, run),
      );
    },
};

/** @throws LockConfigError outside of a running application, and for options that cannot work in it */
function callOf(method: LockedMethod, self: unknown, args: readonly unknown[]): MethodCall {
  return new MethodCall(method.planIn(serviceOf(method.name, self)), self, args, requestHandledBy(method));
}

function iterated(
  method: LockedMethod,
  self: unknown,
  args: readonly unknown[],
  start: () => unknown,
): ReturnType<typeof lockedIteration> {
  return lockedIteration(method.name, async (signal) => callOf(method, self, args).lock(signal), start);
}

/** The result of a plain function, run under the lock. An async generator that it returns has not begun, so its steps lock again. */
async function awaited(
  method: LockedMethod,
  self: unknown,
  args: readonly unknown[],
  run: () => unknown,
): Promise<unknown> {
  const call = await callOf(method, self, args).lock();
  if (!call.lock) return call.instead;
  const { lock } = call;
  let given: unknown;
  const task = () => (given = run());
  const check = (result: unknown): void => {
    // A promise of a generator is none: the function has worked under the lock for it. That of a locked method below this one is
    // both, as a result of such a method is. A run for a tick has begun with the call.
    if (call.run || !isIteration(given) || !isIteration(result)) refuseStream(method, result);
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

/** Runs a task under the lock of its call, which is released at its end. @param check throws for a result that the method must not give */
function perform(
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

/** Ends the lock of a function that has done nothing but return a generator. */
class NotBegun extends Error {
  constructor(readonly steps: unknown) {
    super('The generator has not begun.');
  }
}

// Nest 11.0 has a @GrpcStreamMethod that makes a promise of the Observable.
function flattened(result: unknown): Observable<unknown> {
  if (!(result instanceof Promise)) return result as Observable<unknown>;
  return from(result).pipe(mergeMap((value) => (isObservable(value) ? value : of(value))));
}

/** A stream that outlives its method would be read without the lock, so the caller does not get it. */
function refuseStream(method: LockedMethod, result: unknown): void {
  if (!isStream(result)) return;
  throw new LockConfigError(
    `${method.name} returns a stream, which would be read after its lock is released: annotate the return type as Observable (imported without "type", with "emitDecoratorMetadata", which esbuild lacks), write an async generator, or use around: 'request' on a handler.`,
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
    keepRequestStreams(args);
    const run = () => original.apply(this, args);
    return kind === 'promise' || kind === 'unknown' ? untilSettled(held, run) : run();
  };
}

// A pipeline may be over before its handler is, as under an interceptor with a timeout: an entry of the handler's own
// keeps the lock until it is done.
async function untilSettled({ plan, lock }: RequestLock, run: () => unknown): Promise<unknown> {
  return runGuarded(plan.service.manager.acquirePlanned(plan.lock, lock.keys, { within: lock }), run, 'ignore');
}
