import type { Clock, Timer } from '../../../api/clock.js';
import type { LockLogger } from '../../../api/logger.js';
import type { Random } from '../../../api/random.js';
import { backOff, type RedisConnection } from './redis-connection.js';

/**
 * The server behind the address of a connection: one server, the master that Sentinel names, a master of a Cluster, or one of several servers
 * that vote. Sentinel and Cluster have a failover, which finds the new master; of servers that vote, the others decide.
 */
export type Topology = 'server' | 'sentinel' | 'cluster' | 'voter';

/** The settings that all connections of a backend share. */
export interface ConnectionSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  /** How long a server may be silent, in ms. */
  readonly commandTimeout: number;
  readonly topology: Topology;
}

/**
 * A connection that is kept open where its library stops.
 *
 * The libraries limit the time to open a socket, and then wait without end for the answers of the handshake. So a connection is given up
 * that is not ready `commandTimeout` ms after its socket has opened. And ioredis ends permanently when a Sentinel announces a failover while it
 * is asked where the master is, because `disconnect()` makes that question fail (seen: a provider that was unavailable until its process
 * was restarted). So the connection is connected again. Connections of node-redis always end.
 */
export abstract class OpenConnection {
  /** The library's connection takes commands. */
  protected isReady = false;
  protected isClosed = false;
  #handshake: Timer | undefined;
  #retry: Timer | undefined;
  #ends = 0;

  constructor(
    protected readonly connection: RedisConnection,
    protected readonly settings: ConnectionSettings,
  ) {
    connection.on('connect', () => {
      this.#limitHandshake();
    });
    connection.on('ready', () => {
      this.#endHandshake();
      this.#ends = 0;
      this.isReady = true;
      this.onReady();
    });
    connection.on('error', (error) => {
      this.onError(error);
    });
    connection.on('close', () => {
      this.#endHandshake();
      this.isReady = false;
      this.onClose();
    });
    connection.on('end', () => {
      if (!this.isClosed) this.#connectAgain();
    });
  }

  protected abstract onReady(): void;

  protected onError(_error: unknown): void {
    // Without a listener, the event would end the process.
  }

  protected onClose(): void {
    // A connection without commands has none to fail.
  }

  protected shut(): void {
    this.isClosed = true;
    this.#endHandshake();
    if (this.#retry !== undefined) this.settings.clock.clearTimer(this.#retry);
    this.connection.disconnect();
  }

  #limitHandshake(): void {
    const { clock, commandTimeout } = this.settings;
    this.#endHandshake();
    this.#handshake = clock.setTimer(() => {
      // After a blocked event loop timers run before sockets are read, so replies that have arrived are read first.
      this.#handshake = clock.setTimer(() => {
        this.#handshake = undefined;
        this.connection.disconnect(true);
      }, 1);
    }, commandTimeout);
  }

  #endHandshake(): void {
    if (this.#handshake !== undefined) this.settings.clock.clearTimer(this.#handshake);
    this.#handshake = undefined;
  }

  #connectAgain(): void {
    const { clock, random } = this.settings;
    this.#ends += 1;
    const connect = () => {
      // Its outcome comes as events.
      this.connection.connect().catch(() => undefined);
    };
    this.#retry = clock.setTimer(connect, backOff(random, this.#ends), true);
  }
}
