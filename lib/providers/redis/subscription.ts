import type { Clock, LockLogger, Timer } from '../../engine/lock-provider.js';
import { limitHandshake } from './handshake.js';
import type { RedisConnection } from './redis-client.js';

/** What the owner of a subscription wants to know of it. */
export interface SubscriptionListener {
  /** It listens: for the first time, or again after messages may have been missed. */
  onUp(): void;
  onMessage(message: string): void;
}

/**
 * The connection on which this process is told of its grants by others.
 *
 * While it is down, the server finds no receiver for a grant and passes this process over; what it may take then, it learns
 * from the replies to its own timed asks. So a lost message does no harm but to speed.
 */
export class Subscription {
  #probe: Timer | undefined;
  readonly #endHandshake: () => void;

  constructor(
    private readonly connection: RedisConnection,
    private readonly channel: string,
    private readonly clock: Clock,
    private readonly logger: LockLogger,
    private readonly patience: number,
    private readonly listener: SubscriptionListener,
  ) {
    this.#endHandshake = limitHandshake(connection, clock, patience);
    connection.on('ready', () => {
      this.#subscribe();
    });
    connection.on('message', (_channel = '', message = '') => {
      listener.onMessage(message);
    });
    // The command connection reports what is wrong with the server.
    connection.on('error', () => undefined);
  }

  async connect(): Promise<void> {
    await this.connection.connect();
  }

  close(): void {
    this.#endProbe();
    this.#endHandshake();
    this.connection.disconnect();
  }

  /** A grant was found that a message should have told of: is anybody there? If not, connect anew. */
  probe(): void {
    if (this.#probe !== undefined) return;
    this.#probe = this.clock.setTimer(() => {
      this.#probe = undefined;
      this.connection.disconnect(true);
    }, this.patience);
    this.connection.call('ping').then(
      () => {
        this.#endProbe();
      },
      () => {
        this.#endProbe();
      },
    );
  }

  #endProbe(): void {
    if (this.#probe !== undefined) this.clock.clearTimer(this.#probe);
    this.#probe = undefined;
  }

  #subscribe(): void {
    this.connection.subscribe(this.channel).then(
      () => {
        this.listener.onUp();
      },
      (error: unknown) => {
        if (!(error instanceof Error) || error.name !== 'ReplyError') return;
        this.logger.warn(
          `Redis refuses this process its channel, so that it gets locks from others up to a second late: ` +
            `allow SUBSCRIBE on "${this.channel}" (${error.message}).`,
        );
      },
    );
  }
}
