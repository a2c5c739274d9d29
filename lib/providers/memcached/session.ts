import type { ProviderContext } from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { LockError, LockUnavailableError } from '../../api/errors.js';
import { Connection } from './connection.js';
import type { MemcachedSettings } from './memcached-options.js';

const RETRY_FIRST = 50;
const RETRY_AT_MOST = 1_000;

/**
 * Keeps one connection, and makes a new one when it ends. Nothing is kept to be sent later: a command without a connection
 * fails at once, and one whose connection has ended is never sent again by itself.
 */
export class Session {
  #connection: Connection | undefined;
  #timer: Timer | undefined;
  /** How often it was connected, or tried, since the server last did something for us. */
  #attempts = 0;
  #isStopped = false;

  constructor(
    private readonly context: ProviderContext,
    private readonly settings: MemcachedSettings,
  ) {}

  /** @throws LockUnavailableError when the server cannot be reached; it is tried again in the background */
  async start(): Promise<void> {
    try {
      await this.#connect();
    } catch (error) {
      if (LockError.is(error)) throw error;
      this.#retry();
      throw this.#unavailable(error);
    }
  }

  /** Does `work` on the connection. @throws LockUnavailableError when it has no answer, so that what came of it is unknown */
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

  stop(): void {
    this.#isStopped = true;
    if (this.#timer) this.context.clock.clearTimer(this.#timer);
    this.#connection?.close();
    this.#connection = undefined;
  }

  async #connect(): Promise<void> {
    const connection = await Connection.open(this.settings, this.context.clock);
    if (this.#isStopped) {
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
    if (this.#isStopped) return;
    const { clock, random } = this.context;
    const delay = Math.min(RETRY_FIRST * 2 ** this.#attempts, RETRY_AT_MOST) * (0.5 + random.fraction() / 2);
    // Being connected proves nothing: a server that is starting or full, or a proxy without one, accepts and closes at once.
    this.#attempts += 1;
    this.#timer = clock.setTimer(() => void this.#reconnect(), delay);
  }

  async #reconnect(): Promise<void> {
    try {
      await this.#connect();
    } catch {
      this.#retry();
      return;
    }
    if (!this.#isStopped) this.context.emit({ type: 'recovered' });
  }

  #unavailable(cause: unknown, sent = true): LockUnavailableError {
    return new LockUnavailableError(
      `The memcached server of lock provider "${this.context.name}" does not answer: check that it is up and reachable.`,
      { provider: this.context.name, cause, sent },
    );
  }
}
