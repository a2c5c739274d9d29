import { EMPTY, from, isObservable, mergeMap, Observable, of } from 'rxjs';
import type { GrantedLock } from '../../../core/hold/granted-lock.js';
import { endGuarded, endUnstarted, type OnLoss } from '../../../core/hold/guarded-task.js';
import { type CallLock, lockCall, type MethodCall } from '../method-call.js';

/**
 * Checks whether the last value (a file, a response) is still being sent. The lock is held until the returned promise
 * settles.
 */
type StillSending = (lastValue: unknown) => Promise<void> | undefined;

type Source = (lock: GrantedLock) => Observable<unknown>;

/** The locked form of a method's Observable. */
export function lockedObservable(call: MethodCall, start: () => unknown): Observable<unknown> {
  return observed(
    (signal) => lockCall(call, signal),
    () => flattened(start()),
  );
}

// In Nest 11.0, @GrpcStreamMethod turns the Observable into a promise.
function flattened(result: unknown): Observable<unknown> {
  if (!(result instanceof Promise)) return result as Observable<unknown>;
  return from(result).pipe(mergeMap(asObservable));
}

/**
 * An observable that acquires its lock for each subscription and holds it until that subscription is torn down.
 * Unsubscribing during the wait ends the wait.
 */
export function observed(
  acquire: (signal: AbortSignal) => Promise<CallLock>,
  source: Source,
  stillSending: StillSending = () => undefined,
): Observable<unknown> {
  return new Observable((subscriber) => {
    const waiting = new AbortController();
    acquire(waiting.signal).then(
      (call) => {
        if (!call.lock) insteadOf(call).subscribe(subscriber);
        else if (subscriber.closed) void call.lock.releaseAfterTask(true);
        else underLock(call.lock, call.onLost, source, stillSending).subscribe(subscriber);
      },
      (error: unknown) => {
        subscriber.error(error);
      },
    );
    return () => {
      waiting.abort();
    };
  });
}

function underLock(
  lock: GrantedLock,
  onLost: OnLoss<unknown>,
  source: Source,
  stillSending: StillSending,
): Observable<unknown> {
  return new Observable((subscriber) => {
    let last: unknown;
    let sending: Promise<void> | undefined;
    // The values have already been sent, so an `onLost` handler's result follows them.
    let answer: Observable<unknown> = EMPTY;
    const policy: OnLoss<unknown> =
      typeof onLost === 'function'
        ? async (error) => {
            const answered = await onLost(error);
            if (answered !== undefined) answer = asObservable(answered);
          }
        : onLost;
    const pass = (end: Promise<unknown>): void => {
      end.then(
        () => {
          answer.subscribe(subscriber);
        },
        (error: unknown) => {
          subscriber.error(error);
        },
      );
    };
    const lost = lock.lostError;
    if (lost) {
      pass(endUnstarted(lock, lost, policy));
      return undefined;
    }
    const inner = lock.surround(() =>
      new Observable((values) => {
        // A synchronous source ends with its consumer only if it knows that before it has been subscribed to.
        subscriber.add(values);
        return source(lock).subscribe(values);
      }).subscribe({
        next: (value) => {
          last = value;
          subscriber.next(value);
        },
        error: (reason: unknown) => {
          pass(endGuarded(lock, { status: 'rejected', reason }, policy));
        },
        complete: () => {
          // A response whose lock is already lost must not be sent.
          sending = lock.lostError && onLost !== 'ignore' ? undefined : stillSending(last);
          // The value's sender waits for completion, so completion cannot wait for the value to be sent.
          if (sending) subscriber.complete();
          else pass(endGuarded(lock, { status: 'fulfilled', value: last }, policy));
        },
      }),
    );
    return () => {
      inner.unsubscribe();
      // Does nothing after a normal end. Otherwise, the work under the lock is incomplete, so the task counts as
      // failed.
      if (sending) void sending.then(() => lock.releaseAfterTask(false));
      else void lock.releaseAfterTask(true);
    };
  });
}

// A skipped call emits nothing. The result of `onBusy` is a value, even if it is undefined.
function insteadOf({ instead, isSkipped }: Extract<CallLock, { lock: undefined }>): Observable<unknown> {
  return isSkipped ? EMPTY : asObservable(instead);
}

function asObservable(value: unknown): Observable<unknown> {
  return isObservable(value) ? value : of(value);
}
