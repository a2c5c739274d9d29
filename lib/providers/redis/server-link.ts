import { CommandConnection } from './command-connection.js';
import type { RedisConnection } from './redis-client.js';
import { ServerClock } from './server-clock.js';
import type { ServersContext } from './servers.js';
import { Subscription, type SubscriptionListener } from './subscription.js';
import { WaitConnection } from './wait-connection.js';

/** What the owner of a link wants to know of it. */
export interface LinkListener extends Pick<SubscriptionListener, 'onMessage' | 'onRefused'> {
  onUp(): void;
  onDown(cause: unknown): void;
  onListening(): void;
}

/**
 * Our connections to one server: for commands, for messages and, with `waitReplicas`, for what replicas must acknowledge.
 *
 * A fail-over may be seen by one of them alone: an address leads elsewhere, and a connection that was made before does not. A master
 * that hung and wakes up would still grant by the others. So they are made anew after the one for commands was.
 */
export class ServerLink {
  readonly serverClock = new ServerClock();
  readonly commands: CommandConnection;
  readonly subscription: Subscription;
  readonly confirmations: WaitConnection | undefined;
  #wasLost = false;

  constructor(
    { clock, logger, patience, waitReplicas }: ServersContext,
    connect: () => RedisConnection,
    isSharded: boolean,
    listener: LinkListener,
  ) {
    this.commands = new CommandConnection(connect(), clock, logger, patience, {
      onUp: () => {
        this.serverClock.forget();
        if (this.#wasLost) this.#renewOthers();
        listener.onUp();
      },
      onDown: (cause) => {
        this.serverClock.forget();
        this.#wasLost = true;
        listener.onDown(cause);
      },
    });
    this.subscription = new Subscription(connect(), isSharded, clock, logger, patience, {
      onUp: () => {
        listener.onListening();
      },
      onRefused: () => {
        listener.onRefused();
      },
      onMessage: (message, channel) => {
        listener.onMessage(message, channel);
      },
    });
    if (waitReplicas > 0) {
      this.confirmations = new WaitConnection(connect(), waitReplicas, clock, logger, patience, () => {
        listener.onUp();
      });
    }
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

  #renewOthers(): void {
    this.subscription.renew();
    this.confirmations?.renew(new Error('The connection for commands was made anew.'));
  }
}
