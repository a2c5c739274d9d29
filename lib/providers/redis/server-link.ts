import { CommandConnection } from './command-connection.js';
import type { RedisConnection } from './redis-client.js';
import { ServerClock } from './server-clock.js';
import type { ServersContext } from './servers.js';
import { Subscription, type SubscriptionListener } from './subscription.js';
import { WaitConnection } from './wait-connection.js';

/** What the owner of a link wants to know of it. */
export interface LinkListener extends Pick<SubscriptionListener, 'onMessage'> {
  onUp(): void;
  onDown(cause: unknown): void;
  onListening(): void;
  /** The server does not serve a channel any more. */
  onMoved(): void;
}

/** Our connections to one server: for commands, for messages and, with `waitReplicas`, for what replicas must acknowledge. */
export class ServerLink {
  readonly serverClock = new ServerClock();
  readonly commands: CommandConnection;
  readonly subscription: Subscription;
  readonly confirmations: WaitConnection | undefined;

  constructor(
    { clock, logger, patience, waitReplicas }: ServersContext,
    connect: () => RedisConnection,
    isSharded: boolean,
    listener: LinkListener,
  ) {
    this.commands = new CommandConnection(connect(), clock, logger, patience, {
      onUp: () => {
        this.serverClock.forget();
        listener.onUp();
      },
      onDown: (cause) => {
        this.serverClock.forget();
        listener.onDown(cause);
      },
    });
    this.subscription = new Subscription(connect(), isSharded, clock, logger, patience, {
      onUp: () => {
        listener.onListening();
      },
      onMoved: () => {
        listener.onMoved();
      },
      onMessage: (message, channel) => {
        listener.onMessage(message, channel);
      },
    });
    if (waitReplicas > 0) this.confirmations = new WaitConnection(connect(), waitReplicas, clock, logger, patience);
  }

  async connect(): Promise<void> {
    const others = [this.subscription.connect()];
    if (this.confirmations) others.push(this.confirmations.connect());
    for (const other of others) other.catch(() => undefined);
    await this.commands.connect();
    await Promise.all(others);
  }

  async close(): Promise<void> {
    this.subscription.close();
    await this.confirmations?.close();
    await this.commands.close();
  }
}
