import { AsyncLocalStorage } from 'node:async_hooks';
import type { LockedMethod } from './locked-method.js';

/** What the interceptor knows of the request that is being handled. */
export interface RequestContext {
  /** The request object of the transport, for `#{request…}`. */
  readonly request: unknown;
  /** The handler whose lock the interceptor has taken around the whole pipeline. */
  readonly locked: LockedMethod | undefined;
}

const storage = new AsyncLocalStorage<RequestContext>();

export function runInRequest<T>(context: RequestContext, task: () => T): T {
  return storage.run(context, task);
}

export function currentRequest(): RequestContext | undefined {
  return storage.getStore();
}
