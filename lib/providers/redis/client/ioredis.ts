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
  type KnownCluster,
  type NatMap,
  notAClient,
  type RedisConnection,
  withoutCommand,
} from './redis-connection.js';

/*
 * ioredis (5 or 6) as this package uses it. Its parts are written as structures, so that the types of either version fit and the
 * application's copy need not be ours.
 */

/** The part of an ioredis client that this package uses: of a single server, or of Sentinel. */
export interface IoredisClient {
  /** Read again at each connection. */
  readonly options?: object | undefined;
  /** A new client with the same options, except for those overridden. */
  duplicate(override?: object): IoredisConnection;
}

/** One connection of our own, made by {@link IoredisClient.duplicate}. */
export interface IoredisConnection extends Omit<RedisConnection, 'ssubscribe'> {
  /** Its own, a copy. */
  readonly options?: object | undefined;
}

/** The part of an ioredis Cluster client that this package uses. */
export interface IoredisCluster {
  readonly isCluster: boolean;
  /** Its `redisOptions` are read again at each connection. */
  readonly options?: object | undefined;
  /** A new client of the same Cluster: it finds the nodes for us, and is closed again. */
  duplicate(nodes?: [], override?: object): IoredisClusterConnection;
}

/** A client of a Cluster of our own, made by {@link IoredisCluster.duplicate}. */
export interface IoredisClusterConnection {
  readonly options: object;
  connect(): Promise<unknown>;
  disconnect(): void;
  nodes(): IoredisNode[];
  on(event: string, listener: (error: unknown) => void): unknown;
}

/** A node that a Cluster client has found. */
export interface IoredisNode extends IoredisClient, Pick<RedisConnection, 'call'> {
  readonly options: object;
}

export interface Ioredis {
  readonly Redis: new (...args: [object] | [string, object]) => IoredisClient;
  readonly Cluster: new (nodes: readonly unknown[], options: object) => IoredisCluster;
}

/**
 * The settings in which our connections differ from the application's client.
 *
 * Nothing is sent twice and nothing is kept for later: after a reconnect, an old command would be executed for a request that
 * is over. ioredis re-sends unanswered commands by default, and executed a lost `SET NX` twice (measured: the second
 * answer says "busy" about our own key). A command that was not answered is an unknown outcome, asked again by id.
 *
 * `commandTimeout` and `socketTimeout` are off: ioredis arms a timer per command for them. `CommandConnection` watches
 * for silence with one timer for all commands.
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
  // A connection that is given up must not linger half-closed when the server is frozen: its commands are unknown until then.
  disconnectTimeout: 100,
  // Sentinel only: leaves a master that was demoted while it hung. Without it ioredis stayed on it (measured: 1 399 lost writes).
  failoverDetector: true,
  // The namespace is our prefix; another one would be put before the hash tag of some keys and not of others.
  keyPrefix: '',
  stringNumbers: false,
  replyMapping: 'legacy',
  // CLIENT SETINFO is for monitoring, and one more permission.
  disableClientInfo: true,
  // Replies decide about a connection, in the place that reads them.
  reconnectOnError: undefined,
} as const;

function hardenedFor(random: Random, timeout: number): object {
  const connectTimeout = connectTimeoutFor(timeout);
  const pauseBefore = (times: number) => backOff(random, times);
  // Sentinels freeze as masters do, and ioredis waits for their answers without end by default.
  return {
    ...HARDENED,
    ...{ connectTimeout, sentinelCommandTimeout: connectTimeout, retryStrategy: pauseBefore },
    // By default ioredis does not listen for a minute to a Sentinel that it has lost.
    sentinelReconnectStrategy: pauseBefore,
    // Applications that prefer failing to waiting set null here. Then we never reconnected after no Sentinel had answered once.
    sentinelRetryStrategy: pauseBefore,
  };
}

/** Connections to the server of the client that `client` gives, where it may be silent for `timeout` ms. */
export function ioredisConnections(client: () => IoredisClient, random: Random, timeout: number): Connect {
  const hardened = hardenedFor(random, timeout);
  return () => ownConnection(() => client().duplicate(hardened));
}

function ownConnection(duplicate: () => IoredisConnection): RedisConnection {
  const connection = duplicateOf(duplicate, ['connect', 'disconnect', 'call', 'subscribe', 'on']);
  if ((connection.options as { lazyConnect?: unknown } | undefined)?.lazyConnect === false) {
    // Its own would send commands again.
    throw notAClient();
  }
  const current = () => duplicate().options;
  hearSentinels(connection, current);
  reportEndedSubscriptions(connection);
  readOptionsAgain(connection, current);
  return Object.assign(connection, {
    // The first of ioredis 5 have no such method.
    ssubscribe: (channel: string) => connection.call('ssubscribe', channel),
    // ioredis ignores that the server refuses SELECT.
    database: () => Number((connection.options as { readonly db?: unknown } | undefined)?.db ?? 0),
  });
}

/**
 * Takes over the options of the moment at each connection. A duplicate copies them once, and ioredis has no function for a password: an
 * application that rotates it (a token of IAM lives for 15 minutes) changes the options of its client.
 */
function readOptionsAgain(connection: IoredisConnection, current: () => object | undefined): void {
  const { options } = connection;
  if (options === undefined) return;
  const connect = connection.connect.bind(connection);
  // ioredis calls it to connect again, too.
  connection.connect = () => {
    try {
      Object.assign(options, current());
    } catch {
      // The application's client cannot be read any more, so those that were read last count.
    }
    return connect();
  };
}

/**
 * Listens for the errors of the connections on which ioredis hears of failovers from Sentinels. Without a listener it prints each of them
 * with its stack to stderr: 106 a minute of one dead Sentinel. If no Sentinel answers, the connection itself has an error.
 */
function hearSentinels(connection: IoredisConnection, current: () => object | undefined): void {
  // ioredis has no event for these connections, and does not export where it makes them.
  const { connector } = connection as {
    readonly connector?: { connectToSentinel?: (endpoint: object, options?: object) => IoredisConnection };
  };
  const connect = connector?.connectToSentinel;
  if (connector && connect) {
    connector.connectToSentinel = (endpoint, options) => {
      const sentinel = connect.call(connector, endpoint, { keepAlive: KEEP_ALIVE, ...options });
      sentinel.on('error', () => undefined);
      readOptionsAgain(sentinel, () => sentinelCredentials(current()));
      return sentinel;
    };
  }
}

/**
 * Emits `moved` when a server of a Cluster ends a subscription. ioredis 6 does so by itself. ioredis 5 takes the server's message for a reply
 * without a command, and reports that as an error.
 */
function reportEndedSubscriptions(connection: IoredisConnection): void {
  connection.on('error', (error: unknown) => {
    if (error instanceof Error && error.message.includes('Last reply: sunsubscribe,')) {
      (connection as Partial<Pick<EventEmitter, 'emit'>>).emit?.('moved');
    }
  });
}

/** As ioredis takes them from the options. */
function sentinelCredentials(options: object = {}): object {
  const { sentinelUsername, sentinelPassword } = options as Partial<Record<string, unknown>>;
  return { username: sentinelUsername ?? null, password: sentinelPassword ?? null };
}

/** Lets a Cluster client of our own find the nodes, with the application's start nodes, DNS and TLS, and closes it again. */
export function ioredisCluster(client: () => IoredisCluster, random: Random, timeout: number): FindCluster {
  return () => find(client, random, timeout);
}

async function find(client: () => IoredisCluster, random: Random, timeout: number): Promise<KnownCluster> {
  const nodeOptions = () => (client().options as { readonly redisOptions?: object } | undefined)?.redisOptions;
  const duplicate = () =>
    client().duplicate([], {
      lazyConnect: true,
      enableReadyCheck: false,
      clusterRetryStrategy: () => null,
      slotsRefreshInterval: undefined,
      slotsRefreshTimeout: timeout,
      shardedSubscribers: false,
      // ioredis 5 does not merge them with those of the client.
      redisOptions: { ...nodeOptions(), connectTimeout: timeout, commandTimeout: timeout, disableClientInfo: true },
    });
  const finder = duplicateOf(duplicate, ['connect', 'disconnect', 'nodes', 'on']);
  let cause: unknown;
  // The error of the last node that was asked in vain: that of the client has no details.
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
  throw new Error('No node of the Cluster reports its slots.', { cause: withoutCommand(cause) });
}

function addressOf({ options }: IoredisNode): Address {
  const { host = '127.0.0.1', port = 6379 } = options as Partial<Address>;
  return { host, port };
}
