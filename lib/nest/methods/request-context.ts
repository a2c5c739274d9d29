import { AsyncLocalStorage } from 'node:async_hooks';
import { Observable } from 'rxjs';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import type { LockedMethod } from './locked-method.js';
import type { MethodPlan } from './method-plan.js';

/** The lock that the interceptor has taken around the whole pipeline of a handler. */
export interface RequestLock {
  readonly method: LockedMethod;
  readonly plan: MethodPlan;
  readonly lock: GrantedLock;
}

/** The request that is being handled, as the interceptor knows it. */
export interface RequestContext {
  /** The request object of the transport, for `#{request…}`. */
  readonly request: unknown;
  /** The locks of its handler, the outermost first. */
  readonly methods: readonly LockedMethod[];
  /** Over HTTP: aborts when the response has been sent. */
  readonly answered: AbortSignal | undefined;
  readonly locked?: RequestLock;
}

const storage = new AsyncLocalStorage<RequestContext>();

export function runInRequest<T>(context: RequestContext, task: () => T): T {
  return storage.run(context, task);
}

/**
 * The Observable that `handle` gives, subscribed in this context: Nest subscribes to the Observable that a handler returns long after the
 * handler itself was called.
 */
export function observedInRequest<T>(context: RequestContext, handle: () => Observable<T>): Observable<T> {
  return new Observable((subscriber) => runInRequest(context, () => handle().subscribe(subscriber)));
}

export function currentRequest(): unknown {
  return storage.getStore()?.request;
}

/** The end of the wait of `method`, if it is the handler of the current request: a client that was told of a failure must not see its work done later. */
export function answeredSignalFor(method: LockedMethod): AbortSignal | undefined {
  const context = storage.getStore();
  return context?.methods.includes(method) ? context.answered : undefined;
}

/** The lock around the current call of `method`, if there is one: work that outlives its request has none any more. */
export function requestLockOf(method: LockedMethod): RequestLock | undefined {
  const locked = storage.getStore()?.locked;
  return locked?.method === method && locked.lock.isOpen ? locked : undefined;
}
