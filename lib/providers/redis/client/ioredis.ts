import type { EventEmitter } from 'node:events';
import type { Random } from '../../../api/random.js';
import {
  type Address,
  backOff,
  type Connect,
  connectTimeoutFor,
  duplicateOf,
  type FindCluster,
  KEEP_ALIVE,
  type NatMap,
  notAClient,
  type RedisConnection,
  withoutCommand,
} from './redis-connection.js';

/*
 * The parts of ioredis (5 or 6) that this package uses. The types are structural, so they fit either version and the
 * application's own copy.
 */

/** An ioredis client for a single server or for Sentinel. */
export interface IoredisClient {
  /** Read for each new connection. */
  readonly options?: object | undefined;
  /** A new client with the same options, apart from the overrides. */
  duplicate(override?: object): IoredisConnection;
}

/** A connection made by {@link IoredisClient.duplicate}. */
export interface IoredisConnection extends Omit<RedisConnection, 'ssubscribe'> {
  /** A copy of the client's options. */
  readonly options?: object | undefined;
}

/** An ioredis client for a Redis Cluster. */
export interface IoredisCluster {
  readonly isCluster: boolean;
  /** `redisOptions` is read for each new connection. */
  readonly options?: object | undefined;
  /** Creates a client for the same Cluster, which is used to find the nodes and then closed. */
  duplicate(nodes?: [], override?: object): IoredisClusterConnection;
}

/** A Cluster client made by {@link IoredisCluster.duplicate}. */
export interface IoredisClusterConnection {
  readonly options: object;
  connect(): Promise<unknown>;
  disconnect(): void;
  nodes(): IoredisNode[];
  on(event: string, listener: (error: unknown) => void): unknown;
}

/** A node found by a Cluster client. */
export interface IoredisNode extends IoredisClient, Pick<RedisConnection, 'call'> {
  readonly options: object;
}

export interface Ioredis {
  readonly Redis: new (...args: [object] | [string, object]) => IoredisClient;
  readonly Cluster: new (nodes: readonly unknown[], options: object) => IoredisCluster;
}

/**
 * The settings that our connections override.
 *
 * Commands are never sent twice or kept for later, because after a reconnect they would run for a request that has
 * ended. By default, ioredis resends unanswered commands: it ran a lost `SET NX` twice (measured), and the second reply
 * reported our own key as busy. If a command gets no reply, its outcome is unknown, so the request is resent under its
 * id.
 *
 * `commandTimeout` and `socketTimeout` are off because ioredis arms a timer per command for them. `CommandConnection`
 * has one timer for all commands.
 */
const HARDENED = {
  lazyConnect: true,
  keepAlive: KEEP_ALIVE,
  enableReadyCheck: true,
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  autoResubscribe: false,
  enableAutoPipelining: false,
  commandTimeout: undefined,
  socketTimeout: undefined,
  // If the server is frozen, a dropped connection must not stay half-closed: its commands aren't settled until it
  // closes.
  disconnectTimeout: 100,
  // Sentinel only: drops a master that was demoted while it hung. Without this, ioredis stayed connected to it
  // (measured: 1,399 lost writes).
  failoverDetector: true,
  // The namespace is our prefix. ioredis would add another prefix to some of our keys but not others.
  keyPrefix: '',
  stringNumbers: false,
  replyMapping: 'legacy',
  // CLIENT SETINFO is only for monitoring and needs an extra permission.
  disableClientInfo: true,
  // `CommandConnection` reads the replies and decides when to reconnect.
  reconnectOnError: undefined,
} as const;

function hardenedFor(random: Random, timeout: number): object {
  const connectTimeout = connectTimeoutFor(timeout);
  const pauseBefore = (times: number) => backOff(random, times);
  // A Sentinel can freeze too, and by default, ioredis waits forever for its replies.
  return {
    ...HARDENED,
    ...{ connectTimeout, sentinelCommandTimeout: connectTimeout, retryStrategy: pauseBefore },
    // By default, ioredis reconnects to a lost Sentinel only after a minute.
    sentinelReconnectStrategy: pauseBefore,
    // Applications that prefer to fail fast set this to null. With null, we never reconnected once all Sentinels had
    // failed to respond.
    sentinelRetryStrategy: pauseBefore,
  };
}

/** Makes connections to `client()`'s server, tolerating `timeout` ms of silence. */
export function ioredisConnections(client: () => IoredisClient, random: Random, timeout: number): Connect {
  const hardened = hardenedFor(random, timeout);
  return () => ownConnection(() => client().duplicate(hardened));
}

function ownConnection(duplicate: () => IoredisConnection): RedisConnection {
  const connection = duplicateOf(duplicate, ['connect', 'disconnect', 'call', 'subscribe', 'on']);
  if ((connection.options as { lazyConnect?: unknown } | undefined)?.lazyConnect === false) {
    // A duplicate that ignores our overrides would resend commands.
    throw notAClient();
  }
  const current = () => duplicate().options;
  catchSentinelErrors(connection, current);
  reportEndedSubscriptions(connection);
  refreshOptions(connection, current);
  return Object.assign(connection, {
    // Early releases of ioredis 5 don't have this method.
    ssubscribe: (channel: string) => connection.call('ssubscribe', channel),
    // ioredis ignores an error from SELECT.
    database: () => Number((connection.options as { readonly db?: unknown } | undefined)?.db ?? 0),
  });
}

/**
 * Reads the client's current options for each connection attempt. A duplicate copies them only when it is made, and
 * ioredis doesn't accept a function for the password, so applications that rotate it (an IAM token lives for 15
 * minutes) update their client's options.
 */
function refreshOptions(connection: IoredisConnection, current: () => object | undefined): void {
  const { options } = connection;
  if (options === undefined) return;
  const connect = connection.connect.bind(connection);
  // ioredis also calls this method to reconnect.
  connection.connect = () => {
    try {
      Object.assign(options, current());
    } catch {
      // The application's client can no longer be read, so use the most recent options.
    }
    return connect();
  };
}

/**
 * Handles errors on the connections that Sentinels use to announce failovers. Without a listener, ioredis prints each
 * error with its stack to stderr: 106 a minute for one dead Sentinel. The errors are harmless: if no Sentinel responds,
 * the main connection fails too.
 */
function catchSentinelErrors(connection: IoredisConnection, current: () => object | undefined): void {
  // ioredis doesn't emit events for these connections or export the code that makes them.
  const { connector } = connection as {
    readonly connector?: { connectToSentinel?: (endpoint: object, options?: object) => IoredisConnection };
  };
  const connect = connector?.connectToSentinel;
  if (connector && connect) {
    connector.connectToSentinel = (endpoint, options) => {
      const sentinel = connect.call(connector, endpoint, { keepAlive: KEEP_ALIVE, ...options });
      sentinel.on('error', () => undefined);
      refreshOptions(sentinel, () => sentinelCredentials(current()));
      return sentinel;
    };
  }
}

/**
 * Emits `moved` when a Cluster server ends a subscription, as ioredis 6 does. ioredis 5 mistakes the server's message
 * for a reply without a command, and reports an error.
 */
function reportEndedSubscriptions(connection: IoredisConnection): void {
  connection.on('error', (error: unknown) => {
    if (error instanceof Error && error.message.includes('Last reply: sunsubscribe,')) {
      (connection as Partial<Pick<EventEmitter, 'emit'>>).emit?.('moved');
    }
  });
}

/** The credentials for Sentinels, as ioredis reads them from its options. */
function sentinelCredentials(options: object = {}): object {
  const { sentinelUsername, sentinelPassword } = options as Partial<Record<string, unknown>>;
  return { username: sentinelUsername ?? null, password: sentinelPassword ?? null };
}

/**
 * Finds a Cluster's nodes with a temporary client that has the application's start nodes and its DNS and TLS options.
 */
export function ioredisCluster(client: () => IoredisCluster, random: Random, timeout: number): FindCluster {
  return async () => {
    const nodeOptions = () => (client().options as { readonly redisOptions?: object } | undefined)?.redisOptions;
    const duplicate = () =>
      client().duplicate([], {
        lazyConnect: true,
        enableReadyCheck: false,
        clusterRetryStrategy: () => null,
        slotsRefreshInterval: undefined,
        slotsRefreshTimeout: timeout,
        shardedSubscribers: false,
        // ioredis 5 doesn't merge these options with the client's.
        redisOptions: { ...nodeOptions(), connectTimeout: timeout, commandTimeout: timeout, disableClientInfo: true },
      });
    const finder = duplicateOf(duplicate, ['connect', 'disconnect', 'nodes', 'on']);
    let cause: unknown;
    // The error from the last node that failed; the client's own error lacks details.
    finder.on('node error', (error) => {
      cause = error;
    });
    finder.on('error', () => undefined);
    try {
      await finder.connect();
      const { natMap } = finder.options as { natMap?: NatMap };
      for (const node of finder.nodes()) {
        try {
          const slots = await node.call('cluster', 'SLOTS');
          const hardened = { ...hardenedFor(random, timeout), readOnly: false };
          const connectTo = (address: Address) =>
            ownConnection(() => node.duplicate({ ...nodeOptions(), ...hardened, ...address }));
          return { slots, asked: addressOf(node), natMap, connectTo };
        } catch (error) {
          cause = error;
        }
      }
    } catch (error) {
      cause ??= error;
    } finally {
      finder.disconnect();
    }
    throw new Error('No Cluster node reported its slots.', { cause: withoutCommand(cause) });
  };
}

function addressOf({ options }: IoredisNode): Address {
  const { host = '127.0.0.1', port = 6379 } = options as Partial<Address>;
  return { host, port };
}
