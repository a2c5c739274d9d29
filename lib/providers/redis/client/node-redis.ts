import { EventEmitter, setMaxListeners } from 'node:events';
import { clearTimeout, setTimeout } from '../../../core/toolkit/real-timers.js';
import {
  type Address,
  type Connect,
  connectTimeoutFor,
  duplicateOf,
  type FindCluster,
  KEEP_ALIVE,
  type NatMap,
  notAClient,
  REPLY_ERROR,
  type RedisConnection,
} from './redis-connection.js';

/*
 * The parts of node-redis (package `redis`, 5 or 6) that this package uses. The types are structural, so they fit
 * either version and the application's own copy.
 */

/** A node-redis client for a single server. */
export interface NodeRedisClient {
  readonly options?: object | undefined;
  /** A new client with the same options, apart from the overrides. */
  duplicate(overrides?: object): NodeRedisConnection;
  withTypeMapping(mapping: object): unknown;
}

/** A connection made by {@link NodeRedisClient.duplicate}. */
export interface NodeRedisConnection {
  readonly options?: object | undefined;
  readonly isOpen: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  sendCommand(args: string[]): Promise<unknown>;
  subscribe(channel: string, listener: (message: string, channel: string) => void): Promise<unknown>;
  sSubscribe(channel: string, listener: (message: string, channel: string) => void): Promise<unknown>;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
}

/** A node-redis client for Sentinel. This package only reads its options, which version 5 does not expose. */
export interface NodeRedisSentinel {
  duplicate(): unknown;
  getMasterNode(): unknown;
}

/** A node-redis client for a Redis Cluster. This package only reads its options. */
export interface NodeRedisCluster {
  duplicate(): unknown;
  readonly masters: readonly unknown[];
}

export interface NodeRedis {
  createClient(options: object): NodeRedisClient;
}

/** The client options that this package reads. */
export interface NodeRedisOptions {
  readonly url?: string | undefined;
  readonly socket?: Partial<Address> | undefined;
  readonly credentialsProvider?: unknown;
}

/** The Cluster client options that this package reads. */
export interface NodeRedisClusterOptions {
  readonly rootNodes: readonly NodeRedisOptions[];
  readonly defaults?: NodeRedisOptions | undefined;
  readonly nodeAddressMap?: NatMap | undefined;
  readonly RESP?: number | undefined;
}

/**
 * Makes connections to the client's server, tolerating `timeout` ms of silence. The client's options and the
 * `overrides` are read for each connection.
 */
export function nodeRedisConnections(
  client: NodeRedisClient,
  timeout: number,
  overrides: NodeRedisOptions = {},
): Connect {
  return () =>
    new NodeRedisLinkConnection((link) => {
      const socket = { ...(client.options as NodeRedisOptions | undefined)?.socket, ...overrides.socket };
      return link.open(() => client.duplicate({ ...overrides, ...hardened(socket, timeout, link) }));
    });
}

/**
 * Finds a Cluster's nodes. node-redis's Cluster client resends commands when their connection breaks, so we only use
 * its options and query its root nodes ourselves. As in that client, only `defaults` apply to the other nodes.
 */
export function nodeRedisCluster(
  library: NodeRedis,
  { rootNodes, defaults, nodeAddressMap, RESP }: NodeRedisClusterOptions,
  timeout: number,
): FindCluster {
  // Created once and then duplicated: `createClient` builds a class with all commands, which takes 3 to 7 ms; a
  // duplicate takes 0.1 ms.
  const client = library.createClient({ RESP, ...defaults });
  // Overrides the client's credentials, because a root node may have a different password from the one in `defaults`.
  const credentialsProvider = defaults?.credentialsProvider;
  return async () => {
    let cause: unknown;
    for (const root of rootNodes) {
      const connection = nodeRedisConnections(client, timeout, { credentialsProvider, ...root })();
      connection.on('error', () => undefined);
      const timer = setTimeout(() => {
        connection.disconnect();
      }, timeout);
      try {
        await connection.connect();
        const slots = await connection.call('CLUSTER', 'SLOTS');
        return {
          slots,
          asked: addressOf(root),
          natMap: nodeAddressMap,
          connectTo: (socket) => nodeRedisConnections(client, timeout, { socket })(),
        };
      } catch (error) {
        cause = error;
      } finally {
        clearTimeout(timer);
        connection.disconnect();
      }
    }
    throw new Error('No Cluster node reported its slots.', { cause });
  };
}

function addressOf({ url, socket }: NodeRedisOptions): Address {
  const { hostname = socket?.host, port = socket?.port } = url === undefined ? {} : new URL(url);
  return { host: hostname?.replace(/^\[|\]$/g, '') ?? '127.0.0.1', port: Number(port) || 6379 };
}

/**
 * Reads a Sentinel or Cluster client's options. node-redis passes them only to a duplicate, so this calls `duplicate`
 * with a constructor that returns its argument. No client is created.
 *
 * @throws LockConfigError if the client does not expose its options
 */
export function nodeRedisOptionsOf(
  client: NodeRedisSentinel | NodeRedisCluster,
  nodes: 'rootNodes' | 'sentinelRootNodes',
): unknown {
  // `duplicate` calls the client prototype's constructor.
  const asked = Object.create(client, { constructor: { value: Options } }) as typeof client;
  const read = (Object.create(asked) as typeof client).duplicate() as Partial<Record<string, unknown>> | undefined;
  if (!Array.isArray(read?.[nodes])) throw notAClient();
  return read;
}

function Options(options: object): object {
  return options;
}

/**
 * The settings that our connections override.
 *
 * Each client serves one socket and is discarded with it, so commands are never resent, and replies can't come from a
 * dropped socket.
 */
export function hardened(socket: object | undefined, timeout: number, link: NodeRedisLink): object {
  return {
    disableOfflineQueue: true,
    // A full queue would reject a release.
    commandsQueueMaxLength: undefined,
    // node-redis 6 arms a timer per command, and stops it when the command is written. `CommandConnection` detects
    // silence instead.
    commandOptions: { timeout: undefined, typeMapping: undefined },
    // Replies to the library's pings would mask missing replies to commands.
    pingInterval: undefined,
    // The namespace is our prefix. The client would add another prefix to some of our keys but not others.
    keyPrefix: undefined,
    // Only replicas need READONLY.
    readonly: false,
    clientSideCache: undefined,
    emitInvalidate: undefined,
    // If notifications are on, the client delays commands and moves them from one socket to another.
    maintNotifications: 'disabled',
    // CLIENT SETINFO is only for monitoring and needs an extra permission.
    disableClientInfo: true,
    socket: {
      ...socket,
      connectTimeout: connectTimeoutFor(timeout),
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE,
      socketTimeout: undefined,
      // Called when the socket ends, while `destroy` still works.
      reconnectStrategy: (_: number, cause: unknown) => {
        link.end(cause);
        return false;
      },
      // `destroy` doesn't close a socket that is still opening.
      signal: link.signal,
    },
  };
}

/** One socket of a connection, starting with the attempt to open it. */
export class NodeRedisLink {
  client: NodeRedisConnection | undefined;
  /** The channels it is subscribed to. */
  readonly channels = new Set<string>();
  /** Why the link ended. */
  cause: unknown;
  isOver = false;
  /** Rejects when the link ends. */
  readonly ended: Promise<never>;
  readonly #abort = new AbortController();

  constructor(private readonly connection: EventEmitter) {
    setMaxListeners(0, this.signal);
    this.ended = new Promise((_, reject) => {
      this.signal.addEventListener('abort', () => {
        reject(this.cause);
      });
    });
    this.ended.catch(() => undefined);
  }

  /** Aborts when the link ends. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** @throws LockConfigError if it is not a node-redis client */
  async open(duplicate: () => NodeRedisConnection): Promise<NodeRedisConnection> {
    const client = duplicateOf(duplicate, ['connect', 'destroy', 'sendCommand', 'subscribe', 'on']);
    this.client = client;
    // Includes decoder errors, after which the library would keep using this socket.
    client.on('error', (cause) => {
      this.end(cause);
    });
    client.on('connect', () => {
      if (!this.isOver) this.connection.emit('connect');
    });
    client.on('sharded-channel-moved', (channel) => {
      this.channels.delete(String(channel));
      if (!this.isOver) this.connection.emit('moved', String(channel));
    });
    await client.connect();
    return client;
  }

  end(cause?: unknown): void {
    if (this.isOver) return;
    this.isOver = true;
    this.cause = cause ?? new Error('The connection was dropped.');
    destroy(this.client);
    this.#abort.abort();
    if (cause !== undefined) this.connection.emit('error', cause);
    this.connection.emit('close');
    this.connection.emit('end');
  }
}

/** Closes a client if it is open. Otherwise, node-redis 5 would throw. */
export function destroy(client: NodeRedisConnection | undefined): void {
  if (client?.isOpen === true) client.destroy();
}

/** A connection to the server that `open` finds for each link. */
export class NodeRedisLinkConnection extends EventEmitter implements RedisConnection {
  #link: NodeRedisLink | undefined;

  constructor(private readonly open: (link: NodeRedisLink) => Promise<unknown>) {
    super();
  }

  async connect(): Promise<void> {
    const link = new NodeRedisLink(this);
    this.#link = link;
    try {
      // node-redis 5 keeps waiting for its credentials provider even after the client has been destroyed.
      await Promise.race([this.open(link), link.ended]);
    } catch (cause) {
      link.end(cause);
    }
    // node-redis 5 resolves even if the client was destroyed in the meantime.
    if (link.isOver) throw link.cause;
    this.emit('ready');
  }

  disconnect(): void {
    this.#link?.end();
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    return this.#send((client) => client.sendCommand([command, ...args]));
  }

  subscribe(channel: string): Promise<unknown> {
    return this.#subscribe(channel, 'message', (client, listener) => client.subscribe(channel, listener));
  }

  ssubscribe(channel: string): Promise<unknown> {
    return this.#subscribe(channel, 'smessage', (client, listener) => client.sSubscribe(channel, listener));
  }

  async #subscribe(
    channel: string,
    event: string,
    send: (client: NodeRedisConnection, listener: (message: string) => void) => Promise<unknown>,
  ): Promise<void> {
    const link = this.#link;
    if (link?.channels.has(channel) === true) {
      // A Cluster server ends a subscription when the slot moves away. node-redis may not have noticed, and would not
      // subscribe again.
      link.end(new Error(`Reconnecting to resubscribe to "${channel}".`));
    }
    await this.#send((client) =>
      send(client, (message) => {
        if (link?.isOver === false) this.emit(event, channel, message);
      }),
    );
    link?.channels.add(channel);
  }

  #send(send: (client: NodeRedisConnection) => Promise<unknown>): Promise<unknown> {
    const link = this.#link;
    if (link?.client === undefined || link.isOver) {
      return Promise.reject(new Error('There is no connection to the server.', { cause: link?.cause }));
    }
    return send(link.client).then(
      (reply) => {
        if (Array.isArray(reply)) reply.forEach(nameError);
        return reply;
      },
      (error: unknown) => {
        // As long as the socket is open, any error comes from the server.
        throw link.isOver ? link.cause : nameError(error);
      },
    );
  }
}

/** Names server errors, because node-redis doesn't. */
function nameError(reply: unknown): unknown {
  if (reply instanceof Error) reply.name = REPLY_ERROR;
  return reply;
}
