import { isObservable, type Observable } from 'rxjs';
import { StreamableFile } from '@nestjs/common';
import { LockConfigError } from '../lock/errors.js';
import { runGuarded } from '../engine/guarded-task.js';
import { lockForCall } from './call-lock.js';
import { lockedIteration } from './locked-iteration.js';
import type { LockedMethod } from './locked-method.js';
import { lockedObservable } from './locked-observable.js';
import { currentRequest } from './request-context.js';

type Method = (...args: unknown[]) => unknown;

/** How a method gives its result, which decides how long its lock is held. */
export type ResultKind = 'promise' | 'observable' | 'iteration';

/** The function that stands in the class in the place of a decorated method. */
export function lockedCall(method: LockedMethod, original: Method, kind: ResultKind): Method {
  const call = CALLS[kind](method, original);
  if (method.options.around !== 'request') return call;
  return function (this: unknown, ...args) {
    if (currentRequest()?.locked === method) return original.apply(this, args);
    // Running on would mean running unlocked.
    throw new LockConfigError(
      `${method.name} has around: 'request', but LockInterceptor did not run for this call: call it as a handler, and in a hybrid application connect with { inheritAppConfig: true }.`,
    );
  };
}

const CALLS: Record<ResultKind, (method: LockedMethod, original: Method) => Method> = {
  promise: (method, original) =>
    async function (this: unknown, ...args) {
      const call = await lockForCall(method, this, args);
      if (!call.lock) return call.instead;
      return runGuarded(call.lock, () => settledResult(method, original.apply(this, args)), call.onLost);
    },
  observable: (method, original) =>
    function (this: unknown, ...args) {
      return lockedObservable(
        (signal) => lockForCall(method, this, args, signal),
        () => original.apply(this, args) as Observable<unknown>,
      );
    },
  iteration: (method, original) =>
    function (this: unknown, ...args) {
      return lockedIteration(
        () => lockForCall(method, this, args),
        () => original.apply(this, args) as AsyncGenerator,
      );
    },
};

async function settledResult(method: LockedMethod, pending: unknown): Promise<unknown> {
  const result = await pending;
  // A stream that outlives its method would be read without the lock.
  if (!isStream(result)) return result;
  throw new LockConfigError(
    `${method.name} returns a stream, which would be read after its lock is released: annotate the return type as Observable, write an async generator, or use around: 'request' on a handler.`,
  );
}

function isStream(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return false;
  return Symbol.asyncIterator in result || isObservable(result) || result instanceof StreamableFile;
}
