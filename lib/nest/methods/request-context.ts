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
  /** Over HTTP: aborts when the response has been sent. A client that has read of a failure must not see its work done later. */
  readonly answered: AbortSignal | undefined;
  readonly locked?: RequestLock;
}

const storage = new AsyncLocalStorage<RequestContext>();

function runInRequest<T>(context: RequestContext, task: () => T): T {
  return storage.run(context, task);
}

/**
 * The Observable that `handle` gives, subscribed in this context: Nest subscribes to the Observable that a handler returns long after the
 * handler itself was called.
 */
export function observedInRequest<T>(context: RequestContext, handle: () => Observable<T>): Observable<T> {
  return new Observable((subscriber) => runInRequest(context, () => handle().subscribe(subscriber)));
}

/** The request whose handler is `method`. Any other method may run in the async context of an unrelated request, as behind a queue. */
export function requestHandledBy(method: LockedMethod): RequestContext | undefined {
  const context = storage.getStore();
  return context?.methods.includes(method) ? context : undefined;
}

/** The lock around the current call of `method`, if there is one: work that outlives its request has none any more. */
export function requestLockOf(method: LockedMethod): RequestLock | undefined {
  const locked = storage.getStore()?.locked;
  return locked?.method === method && locked.lock.isOpen ? locked : undefined;
}
