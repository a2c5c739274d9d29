import type { BackendContext } from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { backOff } from '../../core/toolkit/timing.js';
import { LockConfigError, LockError, LockUnavailableError } from '../../api/errors.js';
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
  /** The server's words, if it has refused the latest connection. */
  #refusal: unknown;
  #isClosed = false;

  constructor(
    private readonly context: BackendContext,
    private readonly settings: MemcachedSettings,
  ) {}

  /** @throws LockUnavailableError when the server cannot be reached, LockConfigError when it refuses; the reconnect goes on in the background */
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
   * Does `work` on the connection.
   *
   * @param key of the lock that it is for
   * @throws LockUnavailableError when it has no answer, so its outcome is unknown; LockConfigError while the server refuses
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

  #errorOf(cause: unknown, key?: string, sent = true): LockError {
    const { name: provider } = this.context;
    if (isRefused(cause)) {
      return new LockConfigError(
        `The memcached server of lock provider "${provider}" refuses it${inBrackets(cause)}, because it demands a login, and the provider has none. Give the locks a server without a login (-Y, -S) that only your applications can reach.`,
        { provider, key, cause, refused: true },
      );
    }
    return new LockUnavailableError(
      `The memcached server of lock provider "${provider}" does not answer${inBrackets(cause)}: check its address, and that it is up and reachable.`,
      { provider, key, cause, sent },
    );
  }
}

/** Whether the server demands a login. */
function isRefused(cause: unknown): boolean {
  return cause instanceof Error && cause.message.startsWith('CLIENT_ERROR unauthenticated');
}
