import { AsyncResource } from 'node:async_hooks';
import { Observable, type Observer, ReplaySubject, Subject } from 'rxjs';
import { isObservablePrototype } from '../../decoration/decorated-method.js';
import { setImmediate } from '../../core/toolkit/real-timers.js';

/** The stream of messages that Nest gives to a handler with `@GrpcStreamMethod`, as Nest marks it. */
interface RequestStream extends Observable<unknown> {
  /** Empties Nest's own buffer into the subscribers. `@GrpcStreamMethod` calls it when the handler has returned; a second call does nothing. */
  drainBuffer(): void;
}

const kept = new WeakSet<RequestStream>();

/**
 * Keeps the messages of gRPC request streams among the arguments of a call until somebody subscribes, without a bound, as Nest does while
 * guards run.
 *
 * The client sends them while the call waits for its lock, and Nest drops what comes between the return of the handler and its
 * subscription. An Observable of any other origin is left alone, since a cold one starts its work when it is subscribed.
 */
export function keepRequestStreams(args: readonly unknown[]): void {
  for (const argument of args) {
    const stream = requestStreamBehind(argument);
    if (stream && !kept.has(stream)) keep(stream);
  }
}

/** Also behind the operators that a controller has put on it for a service. */
function requestStreamBehind(argument: unknown): RequestStream | undefined {
  for (let each = argument; typeof each === 'object' && each !== null; each = (each as { source?: unknown }).source) {
    if (!isObservablePrototype(Object.getPrototypeOf(each))) return undefined;
    if (Object.hasOwn(each, 'drainBuffer')) return each as RequestStream;
  }
  return undefined;
}

function keep(stream: RequestStream): void {
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
  // In the same tick as the subscription: Nest would repeat the messages that come between the two.
  stream.drainBuffer();
  let isSubscribed = false;
  const replayed = new Observable((subscriber) => {
    // Messages arrive outside of the lock and of the request of their call.
    const here = new AsyncResource('RequestStream');
    const subscription = live.subscribe({
      next: (message) => {
        here.runInAsyncScope(() => {
          subscriber.next(message);
        });
      },
      error: (error: unknown) => {
        here.runInAsyncScope(() => {
          subscriber.error(error);
        });
      },
      complete: () => {
        here.runInAsyncScope(() => {
          subscriber.complete();
        });
      },
    });
    if (!isSubscribed) {
      isSubscribed = true;
      // After the handler has made all of its subscriptions, as Nest does.
      setImmediate(() => {
        const early = target;
        target = live;
        early.subscribe(live);
      });
    }
    return subscription;
  });
  // The stream itself changes, since others have it already: a controller that has put operators on it, or Nest for another try.
  Object.defineProperty(stream, 'subscribe', {
    value: (...observer: [Partial<Observer<unknown>>?]) => replayed.subscribe(...observer),
  });
}
