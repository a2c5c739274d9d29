import type { Clock, Timer } from '../../../api/clock.js';

/*
 * ioredis as this package uses it: the parts of its clients, the settings of our connections, and what keeps them connecting.
 */

/**
 * The part of an ioredis client (5 or 6) that this provider uses. Written as a structure, so that the types of either
 * version fit and the application's copy need not be ours.
 */
export interface RedisClient {
  /** A new client with the same options, except for those overridden. */
  duplicate(override?: object): RedisConnection;
}

/** One connection of our own, made by {@link RedisClient.duplicate}. */
export interface RedisConnection {
  connect(): Promise<unknown>;
  disconnect(reconnect?: boolean): void;
  call(command: string, ...args: string[]): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: string[]) => void): unknown;
}

/** The part of an ioredis Cluster client that this provider uses. */
export interface RedisClusterClient {
  readonly isCluster: boolean;
  /** A new client of the same Cluster: it finds the nodes for us, and is closed again. */
  duplicate(nodes?: [], override?: object): RedisClusterConnection;
}

/** A client of a Cluster of our own, made by {@link RedisClusterClient.duplicate}. */
export interface RedisClusterConnection {
  readonly options: object;
  connect(): Promise<unknown>;
  disconnect(): void;
  nodes(): RedisClusterNode[];
  on(event: string, listener: (error: unknown) => void): unknown;
}

/** A node that a Cluster client has found. */
export interface RedisClusterNode extends RedisClient, Pick<RedisConnection, 'call'> {
  readonly options: object;
}

/** Sends commands, each once. */
export interface CommandSender {
  readonly isUp: boolean;
  /** No command is in flight. */
  readonly isIdle: boolean;
  /** `onFailure` gets the server's error, {@link NotSent}, or another error when the outcome is unknown. */
  send(command: string, args: string[], onReply: (reply: unknown) => void, onFailure: (error: unknown) => void): void;
}

/** A command that has not left this process. */
export class NotSent extends Error {
  override readonly name = 'NotSent';
}

/**
 * The settings in which our connections differ from the application's client.
 *
 * Nothing is sent twice and nothing is kept for later: after a reconnect, an old command would be executed for an attempt that
 * is over. ioredis re-sends unanswered commands by default, and executed a lost `SET NX` twice (measured: the second
 * answer says "busy" about our own key). A command that was not answered is an unknown outcome, asked again by id.
 *
 * `commandTimeout` and `socketTimeout` are off: ioredis arms a timer per command for them. {@link CommandConnection} watches
 * for silence with one timer for all commands.
 */
const HARDENED = {
  lazyConnect: true,
  enableReadyCheck: true,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  autoResubscribe: false,
  enableAutoPipelining: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
  // A connection that is given up must not linger half-closed when the server is frozen: its commands are unknown until then.
  disconnectTimeout: 100,
  // Sentinel only: leaves a master that was demoted while it hung. Without it ioredis stayed on it (measured: 1 399 lost writes).
  failoverDetector: true,
  // By default ioredis does not listen for a minute to a Sentinel that it has lost.
  sentinelReconnectStrategy: backOff,
  // Applications that prefer failing to waiting set null here. Then we never reconnected after no Sentinel had answered once.
  sentinelRetryStrategy: backOff,
  // The namespace is our prefix; another one would be put before the hash tag of some keys and not of others.
  keyPrefix: '',
  stringNumbers: false,
  replyMapping: 'legacy',
  // CLIENT SETINFO is for monitoring, and one more permission.
  disableClientInfo: true,
  retryStrategy: backOff,
  // Replies decide about a connection, in the place that reads them.
  reconnectOnError: undefined,
} as const;

/**
 * How long to wait before the next try, in ms: 50 more with each, as ioredis does by default. Doubled pauses would find a server
 * that was away for half a lease only when the other half is over (measured: after 1.5 s away up to 1.5 s later, with these 0.4 s).
 */
function backOff(times: number): number {
  return Math.min(50 * times, 2_000) * (0.75 + Math.random() / 4);
}

/** Of 10 s, ioredis' default, the longest part of a failover would be spent on a host that is gone. */
const CONNECT_WITHIN = 2_000;

/** The settings of our connections, where a server may be silent for `timeout` ms. */
export function hardenedFor(timeout: number): object {
  const connectTimeout = Math.max(timeout, CONNECT_WITHIN);
  // Sentinels freeze as masters do, and ioredis waits for their answers without end by default.
  return { ...HARDENED, connectTimeout, sentinelCommandTimeout: connectTimeout };
}

/**
 * Keeps a connection connecting where ioredis stops. Answers a function that ends it, to be called before the connection is closed.
 *
 * ioredis limits the time to open a socket, and then waits without end for the answers of the handshake. So a connection is given up
 * that is not ready `timeout` ms after its socket has opened. And ioredis ends permanently when a Sentinel announces a failover while it
 * is asked where the master is, because `disconnect()` makes that question fail (seen: a provider that was unavailable until its process
 * was restarted). So the connection is connected again.
 */
export function keepConnecting(connection: RedisConnection, clock: Clock, timeout: number): () => void {
  let handshake: Timer | undefined;
  let retry: Timer | undefined;
  let ends = 0;
  let isOver = false;

  const endHandshake = (): void => {
    if (handshake !== undefined) clock.clearTimer(handshake);
    handshake = undefined;
  };
  connection.on('connect', () => {
    endHandshake();
    handshake = clock.setTimer(() => {
      // After a blocked event loop timers run before sockets are read, so replies that have arrived are read first.
      handshake = clock.setTimer(() => {
        handshake = undefined;
        connection.disconnect(true);
      }, 1);
    }, timeout);
  });
  connection.on('close', endHandshake);
  connection.on('ready', () => {
    endHandshake();
    ends = 0;
  });
  connection.on('end', () => {
    if (isOver) return;
    ends += 1;
    retry = clock.setTimer(() => {
      // Its outcome comes as events.
      connection.connect().catch(() => undefined);
    }, backOff(ends));
  });

  return () => {
    isOver = true;
    endHandshake();
    if (retry !== undefined) clock.clearTimer(retry);
  };
}

/**
 * Listens for the errors of the connections on which ioredis hears of failovers from Sentinels. Without a listener it prints each of them
 * with its stack to stderr: 106 a minute of one dead Sentinel. If no Sentinel answers, the connection itself has an error.
 */
export function withHeardSentinels(connection: RedisConnection): RedisConnection {
  // ioredis has no event for these connections, and does not export where it makes them.
  const { connector } = connection as {
    readonly connector?: { connectToSentinel?: (...args: unknown[]) => RedisConnection };
  };
  const connect = connector?.connectToSentinel;
  if (connector && connect) {
    connector.connectToSentinel = (...args) => {
      const sentinel = connect.apply(connector, args);
      sentinel.on('error', () => undefined);
      return sentinel;
    };
  }
  return connection;
}

/** ioredis notes the command in its errors, and with it a holder's id or the password, which no log may show. */
export function withoutCommand(error: unknown): unknown {
  if (error instanceof Error) Reflect.deleteProperty(error, 'command');
  return error;
}
