import type { Timer } from '../../api/clock.js';
import { type ConnectionSettings, isFromReplica, OpenConnection } from './client/open-connection.js';
import { isReplyError, type RedisConnection } from './client/redis-connection.js';
import { isForbidden } from './client/refusals.js';

/** How long to wait before subscribing again to a channel that the server has refused, in ms. */
const RETRY_DELAY = 1_000;

/** Reacts to subscription events. */
export interface SubscriptionListener {
  /** The subscription is listening, for the first time or again after messages may have been missed. */
  onListening(): void;
  /** A Cluster server doesn't own a channel's slot, or has lost it and ended the subscription. */
  onRefused?(): void;
  onMessage(message: string, channel: string, from: Subscription): void;
}

/**
 * The connection on which this process receives grants triggered by releases in other processes.
 *
 * While it is down, the server finds no receiver for a grant and skips this process, which then has to poll for its
 * grants. So a lost message only causes a delay.
 */
export class Subscription extends OpenConnection {
  #probe: Timer | undefined;
  #retry: Timer | undefined;
  /** The channels that the server has refused, because it was loading its data or running a script, or by its ACL. */
  readonly #refused = new Set<string>();
  #hasWarned = false;
  #channels: readonly string[] = [];
  #isSharded = false;

  constructor(
    connection: RedisConnection,
    settings: ConnectionSettings,
    private readonly listener: SubscriptionListener,
  ) {
    super(connection, settings);
    connection.on('moved', (channel?: string) => {
      this.#forget(channel === undefined ? this.#channels : [channel]);
    });
    for (const event of ['message', 'smessage']) {
      connection.on(event, (channel = '', message = '') => {
        // Ignores messages from the old server during a reconnect.
        if (this.isReady) listener.onMessage(message, channel, this);
      });
    }
  }

  /** Whether it uses sharded channels (in a Cluster with Redis 7 or later). */
  get isSharded(): boolean {
    return this.#isSharded;
  }

  async connect(): Promise<void> {
    await this.connection.connect();
  }

  protected onReady(): void {
    // The server may have been upgraded.
    this.#isSharded = this.settings.topology === 'cluster';
    // Sent first, because a subscribed connection accepts no other commands.
    if (this.mustBeMaster) void this.#leaveIfReplica();
    void this.#subscribe(this.#channels);
  }

  /** The command connection may have reached the master, whose handoffs would never find this process. */
  async #leaveIfReplica(): Promise<void> {
    try {
      const info = await this.connection.call('info', 'replication');
      if (this.isReady && isFromReplica(info)) this.leaveReplica();
    } catch {
      // Without the permission, the subscription relies on the command connection's check.
    }
  }

  /** Replaces the list of channels. A Cluster server ends subscriptions to moved channels on its own. */
  listenTo(channels: readonly string[]): void {
    const added = channels.filter((channel) => !this.#channels.includes(channel));
    this.#channels = channels;
    if (this.isReady && added.length > 0) void this.#subscribe(added);
  }

  listensTo(channel: string): boolean {
    return this.#channels.includes(channel);
  }

  /**
   * Reconnects, because the address may now point to another server. An attempt in progress may still lead to the old
   * one, so it is dropped too.
   */
  reconnect(): void {
    if (this.isClosed) return;
    this.isReady = false;
    this.connection.disconnect(true);
  }

  close(): void {
    this.#endProbe();
    if (this.#retry !== undefined) this.settings.clock.clearTimer(this.#retry);
    this.shut();
  }

  /**
   * Called when a message about a grant didn't arrive. Reconnects if the server doesn't reply to a ping on this
   * connection.
   */
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

  /** Returns whether the channel is now subscribed. */
  async #subscribeTo(channel: string): Promise<boolean> {
    const isSharded = this.#isSharded;
    try {
      // One channel at a time, because all channels in one SSUBSCRIBE must be in the same hash slot.
      await (isSharded ? this.connection.ssubscribe(channel) : this.connection.subscribe(channel));
      return true;
    } catch (error) {
      if (!isReplyError(error)) return false;
      if (isSharded && error.message.includes('unknown command')) {
        // Redis versions before 7 don't support SSUBSCRIBE. The script has the same fallback.
        this.#isSharded = false;
        return this.#subscribeTo(channel);
      }
      const isDenied = isForbidden(error);
      if (isDenied && !this.#hasWarned) {
        this.#hasWarned = true;
        this.settings.logger.warn(
          `Redis denies this process access to its channel (${error.message}), so it only gets locks no other process is waiting for. ` +
            `Grant ${isSharded ? 'SSUBSCRIBE' : 'SUBSCRIBE'} on "${channel}".`,
        );
      }
      if (isSharded && !isDenied) this.#forget([channel]);
      else this.#subscribeLater(channel);
      return false;
    }
  }

  #subscribeLater(channel: string): void {
    this.#refused.add(channel);
    this.#retry ??= this.settings.clock.setTimer(() => {
      this.#retry = undefined;
      const channels = [...this.#refused].filter((each) => this.listensTo(each));
      this.#refused.clear();
      if (this.isReady) void this.#subscribe(channels);
    }, RETRY_DELAY);
  }

  /** Removes channels, so the next `listenTo` resubscribes. By then, a server may know that it owns the slots. */
  #forget(channels: readonly string[]): void {
    this.#channels = this.#channels.filter((each) => !channels.includes(each));
    this.listener.onRefused?.();
  }
}
