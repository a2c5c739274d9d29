import type { BackendContext } from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { backOff } from '../../core/toolkit/timing.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../api/errors.js';
import { inBrackets } from '../../api/printable.js';
import { Connection } from './connection.js';
import type { MemcachedSettings } from './memcached-options.js';

const RETRY = { first: 50, most: 1_000 };

/**
 * Maintains one connection and replaces it when it ends. Commands are never queued: without a connection they fail
 * immediately, and after a lost connection they aren't sent again.
 */
export class ReconnectingConnection {
  #connection: Connection | undefined;
  #timer: Timer | undefined;
  /** The number of connection attempts since the server last executed a command. */
  #attempts = 0;
  /** The server's reason for rejecting the latest connection. */
  #refusal: unknown;
  #isClosed = false;

  constructor(
    private readonly context: BackendContext,
    private readonly settings: MemcachedSettings,
  ) {}

  /**
   * @throws LockUnavailableError if the server can't be reached; reconnecting continues in the background
   * @throws LockConfigError if the server rejects the connection
   */
  async open(): Promise<void> {
    try {
      await this.#connect();
    } catch (error) {
      if (LockError.is(error)) throw error;
      this.#retry();
      throw this.#errorOf(error);
    }
  }

  /**
   * Runs `work` on the connection.
   *
   * @param key the key to name in errors
   * @throws LockUnavailableError if there is no response, so the outcome is unknown
   * @throws LockConfigError while the server rejects connections
   */
  async use<T>(work: (connection: Connection) => Promise<T>, key?: string): Promise<T> {
    if (!this.#connection) throw this.#errorOf(this.#refusal, key, false);
    try {
      const answer = await work(this.#connection);
      this.#attempts = 0;
      return answer;
    } catch (error) {
      throw this.#errorOf(error, key);
    }
  }

  close(): void {
    this.#isClosed = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    this.#connection?.close();
    this.#connection = undefined;
  }

  async #connect(): Promise<void> {
    this.#refusal = undefined;
    const connection = await Connection.open(this.settings, this.context.clock).catch((error: unknown) => {
      if (isRefused(error)) this.#refusal = error;
      throw error;
    });
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
    // A successful connection proves nothing: a server that is starting or full, or a proxy without a server, accepts
    // connections and then closes them.
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

  #errorOf(cause: unknown, key?: string, sent = true): LockError {
    const { name: provider } = this.context;
    if (isRefused(cause)) {
      return new LockConfigError(
        `The memcached server for lock provider "${provider}" requires authentication${inBrackets(cause)}, which the provider does not support. Use a server without authentication (-Y, -S) that only your applications can reach.`,
        { provider, key, cause, refused: true },
      );
    }
    return new LockUnavailableError(
      `The memcached server for lock provider "${provider}" is not responding${inBrackets(cause)}. Make sure that its address is right and that it is running and reachable.`,
      { provider, key, cause, sent },
    );
  }
}

/** Whether the server requires authentication. */
function isRefused(cause: unknown): boolean {
  return cause instanceof Error && cause.message.startsWith('CLIENT_ERROR unauthenticated');
}
