import { diag } from '@opentelemetry/api';
import { subscribe, type TracingChannel, unsubscribe } from 'node:diagnostics_channel';

/** The work of a subscriber for each operation of a tracing channel. */
interface Observer<T extends object, N> {
  /** The operation begins. The answer is what `end` will need. */
  readonly begin: (trace: T) => N;
  /** The operation is over; without a trace when nobody will hear of its end, because the subscriber leaves first. */
  readonly end: (note: N, trace?: T) => void;
}

/** Follows the operations of a tracing channel from their beginning to their end. Those that began before it are not followed. */
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

  /** Leaves the channel, and closes those that are open. */
  leave(): void {
    unsubscribe(this.channel.start.name, this.#onStart);
    unsubscribe(this.channel.asyncEnd.name, this.#onAsyncEnd);
    for (const note of this.#notes.values()) this.observer.end(note);
    this.#notes.clear();
  }
}

/** An SDK that throws must not end the process, which Node does for a subscriber that throws. */
function onFailure(error: unknown): void {
  diag.error('nestjs-distributed-lock: a span or a measurement was not recorded.', error);
}
