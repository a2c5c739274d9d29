import { CommandConnection, type ConnectionListener } from './client/command-connection.js';
import type { ConnectionSettings } from './client/open-connection.js';
import type { Address, Connect } from './client/redis-connection.js';
import type { KeyLayout } from './key-layout.js';
import { ServerClock } from './server-clock.js';
import { Subscription, type SubscriptionListener } from './subscription.js';
import { WaitConnection } from './wait-connection.js';

/** The settings that all servers of a backend share. */
export interface ServerSettings extends ConnectionSettings {
  readonly layout: KeyLayout;
  /** This process's id in the queues and on its channels. */
  readonly process: string;
  readonly waitReplicas: number;
}

/**
 * Our connections to one server: for commands, messages, and (with `waitReplicas`) commands that replicas must
 * acknowledge.
 *
 * Sometimes only one of the connections notices a failover: the address points to the new master, but an established
 * connection still leads to the old one. If that master woke up, it would keep granting locks on that connection. So
 * when the command connection is replaced, the others are too.
 */
export class RedisServer implements ConnectionListener {
  readonly serverClock = new ServerClock();
  readonly commands: CommandConnection;
  readonly subscription: Subscription;
  readonly confirmations: WaitConnection | undefined;
  #wasLost = false;
  #connected: Promise<void> | undefined;

  constructor(
    settings: ServerSettings,
    connect: Connect,
    private readonly listener: ConnectionListener & SubscriptionListener,
    /** In a Cluster. */
    readonly address?: Address,
  ) {
    this.commands = new CommandConnection(connect(), settings, this);
    this.subscription = new Subscription(connect(), settings, listener);
    if (settings.waitReplicas === 0) return;
    const onUp = () => {
      listener.onUp();
    };
    // The command connection reports outages.
    const onDown = () => undefined;
    this.confirmations = new WaitConnection(connect(), settings, { onUp, onDown }, settings.waitReplicas);
  }

  /** Rejects if the first attempt fails, but keeps trying to reconnect in the background. */
  connect(): Promise<void> {
    this.#connected ??= this.#connect();
    return this.#connected;
  }

  async #connect(): Promise<void> {
    const others = [this.subscription, this.confirmations].flatMap((other) => other?.connect() ?? []);
    for (const other of others) other.catch(() => undefined);
    await this.commands.connect();
    await Promise.all(others);
  }

  async close(): Promise<void> {
    this.subscription.close();
    await this.confirmations?.close();
    await this.commands.close();
  }

  onUp(): void {
    this.serverClock.forget();
    if (this.#wasLost) {
      this.subscription.reconnect();
      this.confirmations?.reconnect(new Error('The command connection was replaced.'));
    }
    this.listener.onUp();
  }

  onDown(cause: unknown): void {
    this.serverClock.forget();
    this.#wasLost = true;
    this.listener.onDown(cause);
  }
}
