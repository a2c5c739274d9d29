import type { Method } from '../../../decoration/decorated-method.js';
import type { DeclaredMethod } from '../declared-method.js';
import { lockCall, perform } from '../method-call.js';
import { iterated } from './iteration.js';
import { lockedObservable } from './observable.js';
import { keepRequestStreams, refuseStream } from './streams.js';
import { lockedUnknown } from './unknown.js';
import { underRequestLock } from './whole-request.js';

const LOCKED = { observable: lockedObservable, iteration: iterated, unknown: lockedUnknown };

/** The function that replaces a locked method in its class. */
export function wrappedMethod(method: DeclaredMethod, original: Method): Method {
  const { name, kind, isAroundRequest } = method;
  const locked = isAroundRequest ? underRequestLock : kind === 'promise' ? undefined : LOCKED[kind];
  if (locked) {
    return function (this: unknown, ...args) {
      keepRequestStreams(args);
      return locked({ method, self: this, args, start: () => original.apply(this, args) });
    };
  }
  const refuse = (result: unknown): void => {
    refuseStream(name, result);
  };
  // Stays an async function, by which other decorators recognize an async method.
  return async function (this: unknown, ...args) {
    keepRequestStreams(args);
    const call = await lockCall({ method, self: this, args });
    return call.lock ? perform(call, () => original.apply(this, args), refuse) : call.instead;
  };
}
