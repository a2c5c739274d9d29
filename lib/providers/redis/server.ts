import type { Clock } from '../../api/clock.js';
import type { LockLogger } from '../../api/logger.js';
import type { Random } from '../../api/random.js';
import { CommandConnection, type ConnectionListener, type Topology } from './client/command-connection.js';
import type { Connect } from './client/redis-connection.js';
import type { KeyLayout } from './key-layout.js';
import { ServerClock } from './server-clock.js';
import { Subscription, type SubscriptionListener } from './subscription.js';
import { WaitConnection } from './wait-connection.js';

/** The settings that all servers of a backend share. */
export interface ServerSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  readonly layout: KeyLayout;
  /** The id of this process in the queues and on its channels. */
  readonly process: string;
  /** How long a server may be silent, in ms. */
  readonly commandTimeout: number;
  readonly waitReplicas: number;
  readonly topology: Topology;
}

/** Reacts to what servers report without a call. */
export interface ServersListener extends ConnectionListener, SubscriptionListener {
  /** A grant in the reply to a call that was sent at `sentAt`. */
  onNotice(notice: string, sentAt: number): void;
}

/**
 * Our connections to one server: for commands, for messages and, with `waitReplicas`, for commands that replicas must acknowledge.
 *
 * A failover may be seen by one connection alone: an address leads elsewhere, and a connection that was made before does not. A master
 * that hung and wakes up would still grant by the others. So they are made again after the one for commands was.
 */
export class Server implements ConnectionListener {
  readonly serverClock = new ServerClock();
  readonly commands: CommandConnection;
  readonly subscription: Subscription;
  readonly confirmations: WaitConnection | undefined;
  readonly #confirming: CommandConnection | undefined;
  #wasLost = false;

  constructor(
    { clock, random, logger, commandTimeout, waitReplicas, topology }: ServerSettings,
    connect: Connect,
    private readonly listener: ServersListener,
  ) {
    this.commands = new CommandConnection(connect(), clock, random, logger, commandTimeout, this, topology);
    this.subscription = new Subscription(
      connect(),
      topology === 'cluster',
      clock,
      random,
      logger,
      commandTimeout,
      listener,
    );
    if (waitReplicas > 0) {
      this.#confirming = new CommandConnection(
        connect(),
        clock,
        random,
        logger,
        commandTimeout,
        {
          onUp: () => {
            listener.onUp();
          },
          // The connection for commands reports it.
          onDown: () => undefined,
        },
        topology,
      );
      this.confirmations = new WaitConnection(this.#confirming, waitReplicas, commandTimeout);
    }
  }

  async connect(): Promise<void> {
    const others = [this.subscription.connect()];
    if (this.#confirming) others.push(this.#confirming.connect());
    for (const other of others) other.catch(() => undefined);
    await this.commands.connect();
    await Promise.all(others);
  }

  async close(): Promise<void> {
    this.subscription.close();
    await this.#confirming?.close();
    await this.commands.close();
  }

  onUp(): void {
    this.serverClock.forget();
    if (this.#wasLost) {
      this.subscription.reconnect();
      this.#confirming?.reconnect(new Error('The connection for commands was made again.'));
    }
    this.listener.onUp();
  }

  onDown(cause: unknown): void {
    this.serverClock.forget();
    this.#wasLost = true;
    this.listener.onDown(cause);
  }
}
