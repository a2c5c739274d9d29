import type { BackendContext } from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { backOff } from '../../core/toolkit/timing.js';
import { LockError, LockUnavailableError } from '../../api/errors.js';
import { inBrackets } from '../../api/printable.js';
import { Connection } from './connection.js';
import type { MemcachedSettings } from './memcached-options.js';

const RETRY = { first: 50, most: 1_000 };

/**
 * Keeps one connection, and opens a new one when it ends. Nothing is kept to be sent later: a command without a connection
 * fails immediately, and a command whose connection has ended is never sent again by this class.
 */
export class ReconnectingConnection {
  #connection: Connection | undefined;
  #timer: Timer | undefined;
  /** How often it has connected, or tried to, since the server last executed a command of ours. */
  #attempts = 0;
  #isClosed = false;

  constructor(
    private readonly context: BackendContext,
    private readonly settings: MemcachedSettings,
  ) {}

  /** @throws LockUnavailableError when the server cannot be reached; the reconnect goes on in the background */
  async open(): Promise<void> {
    try {
      await this.#connect();
    } catch (error) {
      if (LockError.is(error)) throw error;
      this.#retry();
      throw this.#unavailable(error);
    }
  }

  /** Does `work` on the connection. @throws LockUnavailableError when it has no answer, so its outcome is unknown */
  async use<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    if (!this.#connection) throw this.#unavailable(undefined, false);
    try {
      const answer = await work(this.#connection);
      this.#attempts = 0;
      return answer;
    } catch (error) {
      throw this.#unavailable(error);
    }
  }

  close(): void {
    this.#isClosed = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    this.#connection?.close();
    this.#connection = undefined;
  }

  async #connect(): Promise<void> {
    const connection = await Connection.open(this.settings, this.context.clock);
    if (this.#isClosed) {
      connection.close();
      return;
    }
    this.#connection = connection;
    connection.onEnd((cause) => {
      this.#connection = undefined;
      this.context.emit({ type: 'unavailable', cause });
      this.#retry();
    });
  }

  #retry(): void {
    if (this.#isClosed) return;
    const { clock, random } = this.context;
    const delay = backOff(random, this.#attempts, RETRY);
    // A connection proves nothing: a server that is starting or full, or a proxy without a server, accepts and closes.
    this.#attempts += 1;
    this.#timer = clock.setTimer(() => void this.#reconnect(), delay, true);
  }

  async #reconnect(): Promise<void> {
    try {
      await this.#connect();
    } catch {
      this.#retry();
      return;
    }
    if (!this.#isClosed) this.context.emit({ type: 'recovered' });
  }

  #unavailable(cause: unknown, sent = true): LockUnavailableError {
    const { name: provider } = this.context;
    return new LockUnavailableError(
      `The memcached server of lock provider "${provider}" does not answer${inBrackets(cause)}: check its address, and that it is up and reachable.`,
      { provider, cause, sent },
    );
  }
}
