import { AsyncResource } from 'node:async_hooks';
import { StreamableFile } from '@nestjs/common';
import { isObservable, Observable, type Observer, ReplaySubject, Subject } from 'rxjs';
import { LockConfigError } from '../../../api/errors.js';
import { setImmediate } from '../../../core/toolkit/real-timers.js';
import { isObservablePrototype } from '../../../decoration/decorated-method.js';

/** Whether a result is read only after the method has returned it and ended. */
export function isStream(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return false;
  if (Symbol.asyncIterator in result || isObservable(result)) return true;
  return result instanceof StreamableFile || result instanceof Response;
}

export function isIterable(value: unknown): value is AsyncIterable<unknown, unknown, unknown> {
  return typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
}

/** Whether a result is an async generator object, or another async iterator that is its own iterable. */
export function isIteration(result: unknown): result is AsyncGenerator<unknown, unknown, unknown> {
  return isIterable(result) && 'next' in result && typeof result.next === 'function';
}

/** Rejects a stream, which outlives its method and would be read without the lock. @throws LockConfigError */
export function refuseStream(method: string, result: unknown): void {
  if (!isStream(result)) return;
  throw new LockConfigError(
    `${method} returns a stream that would be read after the lock is released: annotate the return type as Observable (imported without "type", with "emitDecoratorMetadata", unsupported by esbuild), write an async generator, or use around: 'request' on a handler.`,
  );
}

/** The stream of messages that Nest passes to a handler with `@GrpcStreamMethod`. */
interface RequestStream extends Observable<unknown> {
  /**
   * Drains Nest's own buffer into the subscribers. `@GrpcStreamMethod` calls it after the handler returns. A second
   * call does nothing.
   */
  drainBuffer(): void;
}

const kept = new WeakSet<RequestStream>();

/**
 * Buffers messages from gRPC request streams in a call's arguments until the handler subscribes. The buffer is
 * unlimited, as Nest's is while guards run.
 *
 * The client sends messages while the call waits for its lock, and Nest drops those that arrive between the handler's
 * return and its subscription. Other Observables are left alone, because a cold one starts its work when subscribed to.
 */
export function keepRequestStreams(args: readonly unknown[]): void {
  for (const argument of args) if (typeof argument === 'object' && argument !== null) keepStreamBehind(argument);
}

/** Also finds the stream behind operators that a controller applied to it for a service. */
function keepStreamBehind(argument: { readonly source?: unknown }): void {
  if (!isObservablePrototype(Object.getPrototypeOf(argument))) return;
  if (Object.hasOwn(argument, 'drainBuffer')) keep(argument as RequestStream);
  else if (typeof argument.source === 'object' && argument.source !== null) keepStreamBehind(argument.source);
}

function keep(stream: RequestStream): void {
  if (kept.has(stream)) return;
  kept.add(stream);
  const live = new Subject<unknown>();
  let target: Subject<unknown> = new ReplaySubject();
  stream.subscribe({
    next: (message) => {
      target.next(message);
    },
    error: (error: unknown) => {
      target.error(error);
    },
    complete: () => {
      target.complete();
    },
  });
  // Runs in the same tick as the subscription; otherwise, Nest would replay any messages in between.
  stream.drainBuffer();
  let isSubscribed = false;
  const replayed = new Observable((subscriber) => {
    // Messages arrive outside the async context of their call, which contains its lock and request.
    const subscription = live.subscribe({
      next: AsyncResource.bind((message: unknown) => {
        subscriber.next(message);
      }),
      error: AsyncResource.bind((error: unknown) => {
        subscriber.error(error);
      }),
      complete: AsyncResource.bind(() => {
        subscriber.complete();
      }),
    });
    if (!isSubscribed) {
      isSubscribed = true;
      // Runs after the handler has made all its subscriptions, as in Nest.
      setImmediate(() => {
        const early = target;
        target = live;
        early.subscribe(live);
      });
    }
    return subscription;
  });
  // Changes the stream itself, because other code already refers to it: a controller that applied operators, or Nest
  // for a retry.
  Object.defineProperty(stream, 'subscribe', {
    value: (...observer: [Partial<Observer<unknown>>?]) => replayed.subscribe(...observer),
  });
}
