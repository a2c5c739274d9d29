import { AsyncLocalStorage } from 'node:async_hooks';
import type { CallHandler, ExecutionContext } from '@nestjs/common';
import { Observable } from 'rxjs';
import type { GrantedLock } from '../../core/hold/granted-lock.js';
import type { DeclaredMethod } from './declared-method.js';
import type { MethodPlan } from './method-plan.js';

/** The lock that the interceptor holds around a handler's whole pipeline. */
export interface RequestLock {
  readonly method: DeclaredMethod;
  readonly plan: MethodPlan;
  readonly lock: GrantedLock;
  /** The same for all interceptors of one call. */
  readonly context: ExecutionContext;
}

/** What the interceptor knows about the current request. */
export interface RequestContext {
  /** The transport's request object, for `#{request…}`. */
  readonly request: unknown;
  /** The handler's locks, outermost first. */
  readonly methods: readonly DeclaredMethod[];
  /**
   * Over HTTP, aborts once the response has been sent: the work must not run after the client has received a failure.
   */
  readonly answered: AbortSignal | undefined;
  readonly locked?: RequestLock | undefined;
}

const storage = new AsyncLocalStorage<RequestContext>();

/**
 * A handler's Observable, subscribed to in its request's context. Nest subscribes to it long after calling the handler.
 */
export function observedInRequest(context: RequestContext, handler: CallHandler): Observable<unknown> {
  return new Observable((subscriber) => storage.run(context, () => handler.handle().subscribe(subscriber)));
}

/**
 * The request whose handler is `method`. Any other method may run in the async context of an unrelated request, for
 * example behind a queue.
 */
export function requestHandledBy(method: DeclaredMethod): RequestContext | undefined {
  const context = storage.getStore();
  return context?.methods.includes(method) ? context : undefined;
}

/** Runs a handler. Another call of it from there, directly or in another request, is not under this request's lock. */
export function runHandler<T>(task: () => T): T {
  return storage.run({ ...(storage.getStore() as RequestContext), locked: undefined }, task);
}

/**
 * The lock around the current call of `method`. `undefined` if there is none, and for work that outlives its request.
 */
export function requestLockOf(method: DeclaredMethod): RequestLock | undefined {
  const locked = storage.getStore()?.locked;
  return locked?.method === method && locked.lock.isOpen ? locked : undefined;
}
