import type { Method, ResultKind } from '../../../decoration/decorated-method.js';
import type { DeclaredMethod } from '../declared-method.js';
import { lockedIteration } from './iteration.js';
import { lockedObservable } from './observable.js';
import { lockedPromise } from './promise.js';
import { lockedUnknown } from './unknown.js';
import { underRequestLock } from './whole-request.js';

const WRAPPERS: Record<ResultKind, (method: DeclaredMethod, original: Method) => Method> = {
  promise: lockedPromise,
  observable: lockedObservable,
  iteration: lockedIteration,
  unknown: lockedUnknown,
};

/** The function that replaces a locked method in its class. */
export function wrappedMethod(method: DeclaredMethod, original: Method): Method {
  return method.isAroundRequest ? underRequestLock(method, original) : WRAPPERS[method.kind](method, original);
}
