import type { Clock, Timer } from '../../api/clock.js';
import type { LockLogger } from '../../api/logger.js';
import { persevere } from './perseverance.js';
import type { RedisConnection } from './redis-client.js';

/** What the owner of a subscription wants to know of it. */
export interface SubscriptionListener {
  /** It listens: for the first time, or again after messages may have been missed. */
  onUp(): void;
  /** The server of a Cluster answers that a channel is another's, or nobody's for now. */
  onRefused(): void;
  onMessage(message: string, channel: string): void;
}

/**
 * The connection on which this process is told of its grants by others.
 *
 * While it is down, the server finds no receiver for a grant and passes this process over; what it may take then, it learns
 * from the replies to its own timed asks. So a lost message does no harm but to speed.
 */
export class Subscription {
  #probe: Timer | undefined;
  readonly #endPerseverance: () => void;
  #channels: readonly string[] = [];
  #isReady = false;

  /** `isSharded`: on the servers of a Cluster, which has channels in hash slots since Redis 7. */
  constructor(
    private readonly connection: RedisConnection,
    private isSharded: boolean,
    private readonly clock: Clock,
    private readonly logger: LockLogger,
    private readonly patience: number,
    private readonly listener: SubscriptionListener,
  ) {
    this.#endPerseverance = persevere(connection, clock, patience);
    connection.on('ready', () => {
      this.#isReady = true;
      void this.#subscribe(this.#channels);
    });
    connection.on('close', () => {
      this.#isReady = false;
    });
    for (const event of ['message', 'smessage']) {
      connection.on(event, (channel = '', message = '') => {
        // While it is being made anew, the server that it leaves may still talk.
        if (this.#isReady) listener.onMessage(message, channel);
      });
    }
    // The command connection reports what is wrong with the server.
    connection.on('error', () => undefined);
  }

  async connect(): Promise<void> {
    await this.connection.connect();
  }

  /** From now on these are the channels; those that it has left, a server of a Cluster ends by itself. */
  listenTo(channels: readonly string[]): void {
    const added = channels.filter((channel) => !this.#channels.includes(channel));
    this.#channels = channels;
    if (this.#isReady && added.length > 0) void this.#subscribe(added);
  }

  /** Is made anew unless it is down already; where it leads may have changed. */
  renew(): void {
    if (!this.#isReady) return;
    this.#isReady = false;
    this.connection.disconnect(true);
  }

  close(): void {
    this.#endProbe();
    this.#endPerseverance();
    this.connection.disconnect();
  }

  /** A grant was found that a message should have told of: is anybody there? If not, connect anew. */
  probe(): void {
    if (this.#probe !== undefined) return;
    this.#probe = this.clock.setTimer(() => {
      this.#probe = undefined;
      this.renew();
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

  async #subscribe(channels: readonly string[]): Promise<void> {
    const outcomes = await Promise.all(channels.map((channel) => this.#subscribeTo(channel)));
    if (outcomes.includes(true)) this.listener.onUp();
  }

  /** Answers whether it listens to the channel now. */
  async #subscribeTo(channel: string): Promise<boolean> {
    try {
      // One by one: a sharded command names channels of one hash slot.
      await (this.isSharded ? this.connection.call('ssubscribe', channel) : this.connection.subscribe(channel));
      return true;
    } catch (error) {
      if (!(error instanceof Error) || error.name !== 'ReplyError') return false;
      if (error.message.startsWith('NOPERM')) {
        this.logger.warn(
          `Redis refuses this process its channel, so that it gets locks from others up to a second late: ` +
            `allow SUBSCRIBE on "${channel}" (${error.message}).`,
        );
      } else if (this.isSharded && error.message.includes('unknown command')) {
        // Before Redis 7. The script falls back in the same way.
        this.isSharded = false;
        return this.#subscribeTo(channel);
      } else if (this.isSharded) {
        // When the server is told again that the channel is its own, it may know.
        this.#channels = this.#channels.filter((each) => each !== channel);
        this.listener.onRefused();
      }
      return false;
    }
  }
}
