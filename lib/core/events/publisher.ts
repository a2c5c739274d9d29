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

  /** Whether anybody listens. Asked by the path of each lock before it builds an event. */
  has(name: LockEventName): boolean {
    return this.#emitter.listenerCount(name) > 0 || eventChannels[name].hasSubscribers;
  }

  /** Publishes an event here and on the channel of the process. */
  publish<N extends LockEventName>(name: N, published: LockEventMap[N]): void {
    if (!this.has(name)) return;
    const event = withJson(published);
    eventChannels[name].publish(event);
    // One by one, so that a listener that throws stops neither the others nor the lock path that publishes; and not under the locks of the
    // caller for whom it is published.
    for (const listener of this.#emitter.rawListeners(name)) {
      try {
        const result: unknown = detached(listener as (event: LockEventMap[N]) => unknown, event);
        // An async listener is not awaited, but its rejection would end the process.
        if (result instanceof Promise) result.catch(this.#onListenerError);
      } catch (error) {
        this.#onListenerError(error);
      }
    }
  }
}
