import type { Timer } from '../../api/clock.js';
import { type ConnectionSettings, OpenConnection } from './client/open-connection.js';
import { isReplyError, type RedisConnection } from './client/redis-connection.js';

/** Reacts to a subscription. */
export interface SubscriptionListener {
  /** The subscription listens: for the first time, or again after messages may have been missed. */
  onListening(): void;
  /** The server of a Cluster does not have the slot of a channel, or has had to end a subscription to it meanwhile. */
  onRefused?(): void;
  onMessage(message: string, channel: string, from: Subscription): void;
}

/**
 * The connection on which this process receives messages about grants that other processes cause.
 *
 * While it is down, the server finds no receiver for a grant and passes this process over. The process then finds its grants by the
 * replies to its own timed asks. So a lost message only costs time.
 */
export class Subscription extends OpenConnection {
  #probe: Timer | undefined;
  #channels: readonly string[] = [];
  /** On the servers of a Cluster, which has channels in hash slots since Redis 7. */
  #isSharded: boolean;

  constructor(
    connection: RedisConnection,
    settings: ConnectionSettings,
    private readonly listener: SubscriptionListener,
  ) {
    super(connection, settings);
    this.#isSharded = settings.topology === 'cluster';
    connection.on('moved', (channel) => {
      this.#forget(channel === undefined ? this.#channels : [channel]);
    });
    for (const event of ['message', 'smessage']) {
      connection.on(event, (channel = '', message = '') => {
        // While it connects again, the server that it leaves may still send.
        if (this.isReady) listener.onMessage(message, channel, this);
      });
    }
  }

  async connect(): Promise<void> {
    await this.connection.connect();
  }

  protected onReady(): void {
    void this.#subscribe(this.#channels);
  }

  /** From now on these are the channels. A server of a Cluster ends subscriptions to channels that have moved by itself. */
  listenTo(channels: readonly string[]): void {
    const added = channels.filter((channel) => !this.#channels.includes(channel));
    this.#channels = channels;
    if (this.isReady && added.length > 0) void this.#subscribe(added);
  }

  /** Whether this is one of its channels. */
  listensTo(channel: string): boolean {
    return this.#channels.includes(channel);
  }

  /** Connects again unless it is down already: the address may lead to another server now. */
  reconnect(): void {
    if (!this.isReady) return;
    this.isReady = false;
    this.connection.disconnect(true);
  }

  close(): void {
    this.#endProbe();
    this.shut();
  }

  /** A grant was found that a message should have announced. Connects again if the server does not answer here. */
  probe(): void {
    if (this.#probe !== undefined) return;
    const { clock, commandTimeout } = this.settings;
    this.#probe = clock.setTimer(() => {
      this.#probe = undefined;
      this.reconnect();
    }, commandTimeout);
    const end = () => {
      this.#endProbe();
    };
    this.connection.call('ping').then(end, end);
  }

  #endProbe(): void {
    if (this.#probe !== undefined) this.settings.clock.clearTimer(this.#probe);
    this.#probe = undefined;
  }

  async #subscribe(channels: readonly string[]): Promise<void> {
    const outcomes = await Promise.all(channels.map((channel) => this.#subscribeTo(channel)));
    if (outcomes.includes(true)) this.listener.onListening();
  }

  /** Answers whether it listens to the channel now. */
  async #subscribeTo(channel: string): Promise<boolean> {
    try {
      // One by one: a sharded command names channels of one hash slot.
      await (this.#isSharded ? this.connection.ssubscribe(channel) : this.connection.subscribe(channel));
      return true;
    } catch (error) {
      if (!isReplyError(error)) return false;
      if (error.message.startsWith('NOPERM')) {
        this.settings.logger.warn(
          `Redis refuses this process its channel (${error.message}), so it gets a lock only when nobody else waits for it: ` +
            `allow ${this.#isSharded ? 'SSUBSCRIBE' : 'SUBSCRIBE'} on "${channel}".`,
        );
      } else if (this.#isSharded && error.message.includes('unknown command')) {
        // Before Redis 7. The script falls back in the same way.
        this.#isSharded = false;
        return this.#subscribeTo(channel);
      } else if (this.#isSharded) this.#forget([channel]);
      return false;
    }
  }

  /** Until a server is known to have their slots: this one again, where it did not know that yet or has lost them in the meantime. */
  #forget(channels: readonly string[]): void {
    this.#channels = this.#channels.filter((each) => !channels.includes(each));
    this.listener.onRefused?.();
  }
}
