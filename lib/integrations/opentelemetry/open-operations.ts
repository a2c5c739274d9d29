import { diag } from '@opentelemetry/api';
import { subscribe, type TracingChannel, unsubscribe } from 'node:diagnostics_channel';

/** A subscriber to the operations of a tracing channel. */
interface Observer<T extends object, N> {
  /** Called when an operation starts. The result is passed to `end`. */
  readonly begin: (trace: T) => N;
  /** Called when the operation ends, or without a trace object if the subscriber unsubscribes first. */
  readonly end: (note: N, trace?: T) => void;
}

/** Observes a tracing channel's operations from start to end. Ignores operations that started earlier. */
export class OpenOperations<T extends object, N> {
  readonly #notes = new Map<object, N>();
  readonly #onStart = (trace: unknown): void => {
    try {
      this.#notes.set(trace as T, this.observer.begin(trace as T));
    } catch (error) {
      onFailure(error);
    }
  };
  readonly #onAsyncEnd = (trace: unknown): void => {
    const note = this.#notes.get(trace as T);
    if (note === undefined) return;
    this.#notes.delete(trace as T);
    try {
      this.observer.end(note, trace as T);
    } catch (error) {
      onFailure(error);
    }
  };

  constructor(
    private readonly channel: TracingChannel<unknown, T>,
    private readonly observer: Observer<T, N>,
  ) {
    subscribe(channel.start.name, this.#onStart);
    subscribe(channel.asyncEnd.name, this.#onAsyncEnd);
  }

  /** Unsubscribes from the channel and ends open operations. */
  leave(): void {
    unsubscribe(this.channel.start.name, this.#onStart);
    unsubscribe(this.channel.asyncEnd.name, this.#onAsyncEnd);
    for (const note of this.#notes.values()) this.observer.end(note);
    this.#notes.clear();
  }
}

/** Catches SDK errors, because Node crashes the process if a subscriber throws. */
function onFailure(error: unknown): void {
  diag.error('nestjs-distributed-lock: a span or a measurement was not recorded.', error);
}
