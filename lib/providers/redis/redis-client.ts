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

/**
 * What our connections set differently from the application's client.
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
  // An application that rather fails than waits says null here; then we never came back when no Sentinel had answered once.
  sentinelRetryStrategy: backOff,
  // The namespace is our prefix; another one would be put before the hash tag of some keys and not of others.
  keyPrefix: '',
  stringNumbers: false,
  replyMapping: 'legacy',
  // CLIENT SETINFO is for monitoring, and one more permission.
  disableClientInfo: true,
  retryStrategy: backOff,
  // What becomes of a connection is decided where its replies are read.
  reconnectOnError: undefined,
} as const;

/**
 * How long to wait before the next try, in ms: 50 more with each, as ioredis does by default. Doubled pauses would find a server
 * that was away for half a lease only when the other half is over (measured: after 1.5 s away up to 1.5 s later, with these 0.4 s).
 */
export function backOff(times: number): number {
  return Math.min(50 * times, 2_000) * (0.75 + Math.random() / 4);
}

/** Of 10 s, ioredis' default, the longest part of a fail-over would be spent on a host that is gone. */
const CONNECT_WITHIN = 2_000;

/** What our connections set, where a server may be silent for `patience` ms. */
export function hardenedFor(patience: number): object {
  const connectTimeout = Math.max(patience, CONNECT_WITHIN);
  // Sentinels freeze as masters do, and ioredis waits for their answers without end by default.
  return { ...HARDENED, connectTimeout, sentinelCommandTimeout: connectTimeout };
}

/** ioredis notes the command in its errors, and with it a holder's id or the password, which no log may show. */
export function withoutCommand(error: unknown): unknown {
  if (error instanceof Error) Reflect.deleteProperty(error, 'command');
  return error;
}
