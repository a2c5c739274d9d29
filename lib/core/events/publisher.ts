import { EventEmitter } from 'node:events';
import type { LockEventListener, LockEventMap, LockEventName, LockEvents } from '../../api/lock-events.js';
import { detached } from '../toolkit/detached.js';
import { withJson } from '../toolkit/with-json.js';
import { eventChannels } from './channels.js';

/** The publishing side of {@link LockEvents}. */
export class LockEventPublisher implements LockEvents {
  readonly #emitter = new EventEmitter();
  readonly #onListenerError: (error: unknown) => void;

  constructor(onListenerError: (error: unknown) => void) {
    this.#onListenerError = onListenerError;
    this.#emitter.setMaxListeners(0);
  }

  on<N extends LockEventName>(name: N, listener: LockEventListener<N>): this {
    this.#emitter.on(name, listener);
    return this;
  }

  once<N extends LockEventName>(name: N, listener: LockEventListener<N>): this {
    this.#emitter.once(name, listener);
    return this;
  }

  off<N extends LockEventName>(name: N, listener: LockEventListener<N>): this {
    this.#emitter.off(name, listener);
    return this;
  }

  /** Whether the event has a listener. Check this before building a frequent event. */
  has(name: LockEventName): boolean {
    return this.#emitter.listenerCount(name) > 0 || eventChannels[name].hasSubscribers;
  }

  /** Publishes an event to the listeners of this application and on the diagnostics channel. */
  publish<N extends LockEventName>(name: N, published: LockEventMap[N]): void {
    if (!this.has(name)) return;
    const event = withJson(published);
    eventChannels[name].publish(event);
    // Doesn't use emit(), because a listener that throws must not stop the other listeners or the caller.
    // Listeners are called detached, outside of the caller's locks.
    for (const listener of this.#emitter.rawListeners(name)) {
      try {
        const result: unknown = detached(listener as (event: LockEventMap[N]) => unknown, event);
        // Async listeners are not awaited, but an unhandled rejection would crash the process.
        if (result instanceof Promise) result.catch(this.#onListenerError);
      } catch (error) {
        this.#onListenerError(error);
      }
    }
  }
}
