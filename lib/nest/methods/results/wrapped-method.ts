import type { Method } from '../../../decoration/decorated-method.js';
import type { DeclaredMethod } from '../declared-method.js';
import { lockCall, type MethodCall, perform } from '../method-call.js';
import { requestHandledBy } from '../request-context.js';
import { iterated } from './iteration.js';
import { lockedObservable } from './observable.js';
import { keepRequestStreams, refuseStream } from './streams.js';
import { lockedUnknown } from './unknown.js';
import { underRequestLock } from './whole-request.js';

const LOCKED = { observable: lockedObservable, iteration: iterated, unknown: lockedUnknown };

/** The function that replaces a locked method in its class. */
export function wrappedMethod(method: DeclaredMethod, original: Method): Method {
  const { name, kind, isAroundRequest } = method;
  const callOf = (self: unknown, args: unknown[]): MethodCall => {
    keepRequestStreams(args);
    return { method, self, args, request: requestHandledBy(method) };
  };
  const locked = isAroundRequest ? underRequestLock : kind === 'promise' ? undefined : LOCKED[kind];
  if (locked) {
    return function (this: unknown, ...args) {
      return locked(callOf(this, args), () => original.apply(this, args));
    };
  }
  // Stays an async function, by which other decorators recognize an async method.
  return async function (this: unknown, ...args) {
    const held = await lockCall(callOf(this, args));
    if (!held.lock) return held.instead;
    return perform(held, async () => {
      const result = await original.apply(this, args);
      refuseStream(name, result);
      return result;
    });
  };
}
