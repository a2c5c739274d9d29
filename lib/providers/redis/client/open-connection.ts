import type { Clock, Timer } from '../../../api/clock.js';
import type { LockLogger } from '../../../api/logger.js';
import type { Random } from '../../../api/random.js';
import { backOff, type RedisConnection } from './redis-connection.js';

/**
 * The target of a connection: a single server, the master that Sentinel reports, a master of a Cluster, or one of the
 * nodes that vote on a Redlock lock. Sentinel and Cluster find the new master after a failover. If a voter fails, the
 * other nodes decide.
 */
export type Topology = 'server' | 'sentinel' | 'cluster' | 'voter';

/** How long to stay connected to a replica before reconnecting, in ms. By then, the address may point to the master. */
const REPLICA_PAUSE = 500;

/** Whether this reply to `INFO replication` comes from a replica. */
export function isFromReplica(info: unknown): boolean {
  return /^role:slave/m.test(String(info));
}

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
 * A connection that keeps reconnecting even after its library gives up.
 *
 * The libraries limit the time to open a socket, but then wait forever for the handshake replies. So we drop a
 * connection that isn't ready `commandTimeout` ms after its socket opens. Also, ioredis disconnects permanently if a
 * Sentinel announces a failover while ioredis is querying it for the master, because `disconnect()` makes that query
 * fail (observed: a provider stayed unavailable until its process was restarted). So we connect again after the
 * library's `end` event. With node-redis, every connection ends that way.
 */
export abstract class OpenConnection {
  /** Whether the library's connection accepts commands. */
  protected isReady = false;
  protected isClosed = false;
  #handshake: Timer | undefined;
  #retry: Timer | undefined;
  /** Closes the connection to a replica. */
  #leaving: Timer | undefined;
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
      this.#stay();
      this.isReady = false;
      this.onClose();
    });
    connection.on('end', () => {
      if (!this.isClosed) this.#connectAgain();
    });
  }

  protected abstract onReady(): void;

  protected onError(_error: unknown): void {
    // Without a listener, an `error` event would end the process.
  }

  protected onClose(): void {
    // Only connections with commands in flight need to react to this.
  }

  /**
   * Whether to leave a replica. A Cluster's replica redirects us, and a Redlock node that rejects writes counts as
   * failed.
   */
  protected get mustBeMaster(): boolean {
    return this.settings.topology === 'server' || this.settings.topology === 'sentinel';
  }

  /** Reconnects after a pause. */
  protected leaveReplica(): void {
    this.#stay();
    this.#leaving = this.settings.clock.setTimer(
      () => {
        this.connection.disconnect(true);
      },
      REPLICA_PAUSE,
      true,
    );
  }

  #stay(): void {
    if (this.#leaving !== undefined) this.settings.clock.clearTimer(this.#leaving);
    this.#leaving = undefined;
  }

  protected shut(): void {
    this.isClosed = true;
    this.#endHandshake();
    this.#stay();
    if (this.#retry !== undefined) this.settings.clock.clearTimer(this.#retry);
    this.connection.disconnect();
  }

  #limitHandshake(): void {
    const { clock, commandTimeout } = this.settings;
    this.#endHandshake();
    this.#handshake = clock.setTimer(() => {
      // After the event loop was blocked, timers run before sockets are read. First let replies that have arrived be
      // read.
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
      // The outcome is reported as an event.
      this.connection.connect().catch(() => undefined);
    };
    this.#retry = clock.setTimer(connect, backOff(random, this.#ends), true);
  }
}
