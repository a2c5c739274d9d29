import type { Method } from '../../../decoration/decorated-method.js';
import type { DeclaredMethod } from '../declared-method.js';
import { lockCall, perform } from '../method-call.js';
import { keepRequestStreams, refuseStream } from './streams.js';

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
