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
 * node-redis (the package `redis`, 5 or 6) as this package uses it. Its parts are written as structures, so that the types of either
 * version fit and the application's copy need not be ours.
 */

/** The part of a client of node-redis that this package uses: one of a single server. */
export interface NodeRedisClient {
  readonly options?: object | undefined;
  /** A new client with the same options, except for those overridden. */
  duplicate(overrides?: object): NodeRedisConnection;
  withTypeMapping(mapping: object): unknown;
}

/** One connection of our own, made by {@link NodeRedisClient.duplicate}. */
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

/** The part of a Sentinel client of node-redis that this package uses: its options. Only version 6 shows them. */
export interface NodeRedisSentinel {
  duplicate(): unknown;
  getMasterNode(): unknown;
}

/** The part of a Cluster client of node-redis that this package uses: its options. */
export interface NodeRedisCluster {
  duplicate(): unknown;
  readonly masters: readonly unknown[];
}

export interface NodeRedis {
  createClient(options: object): NodeRedisClient;
}

/** The options of a client, as far as this package reads them. */
export interface NodeRedisOptions {
  readonly url?: string | undefined;
  readonly socket?: Partial<Address> | undefined;
  readonly credentialsProvider?: unknown;
}

/** As {@link NodeRedisOptions}, of a Cluster client. */
export interface NodeRedisClusterOptions {
  readonly rootNodes: readonly NodeRedisOptions[];
  readonly defaults?: NodeRedisOptions | undefined;
  readonly nodeAddressMap?: NatMap | undefined;
  readonly RESP?: number | undefined;
}

/**
 * Connections to the server of this client, where it may be silent for `timeout` ms. `overrides` are other options of the client. Both are
 * read at each connection.
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
 * The nodes of a Cluster. The Cluster client of node-redis sends commands again when their connection breaks, so only its options are
 * used: its root nodes are asked here, and as there, only `defaults` holds for the other nodes.
 */
export function nodeRedisCluster(
  library: NodeRedis,
  { rootNodes, defaults, nodeAddressMap, RESP }: NodeRedisClusterOptions,
  timeout: number,
): FindCluster {
  // Once, because each makes a class with all commands: 3 to 7 ms (measured), and a duplicate 0.1 ms.
  const client = library.createClient({ RESP, ...defaults });
  // That of the client has the password of `defaults`, and a root node may have its own.
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
    throw new Error('No node of the Cluster reports its slots.', { cause });
  };
}

function addressOf({ url, socket }: NodeRedisOptions): Address {
  const { hostname = socket?.host, port = socket?.port } = url === undefined ? {} : new URL(url);
  return { host: hostname?.replace(/^\[|\]$/g, '') ?? '127.0.0.1', port: Number(port) || 6379 };
}

/**
 * The options of a Sentinel or Cluster client: those that a duplicate would get, because node-redis shows them nowhere else. Nothing
 * is made.
 *
 * @throws LockConfigError for a client that does not show them
 */
export function nodeRedisOptionsOf(
  client: NodeRedisSentinel | NodeRedisCluster,
  nodes: 'rootNodes' | 'sentinelRootNodes',
): unknown {
  // `duplicate` makes one with the constructor of its prototype.
  const asked = Object.create(client, { constructor: { value: Options } }) as typeof client;
  const read = (Object.create(asked) as typeof client).duplicate() as Partial<Record<string, unknown>> | undefined;
  if (!Array.isArray(read?.[nodes])) throw notAClient();
  return read;
}

function Options(options: object): object {
  return options;
}

/**
 * The settings in which our connections differ from the application's client.
 *
 * A client serves one socket and is thrown away with it. So nothing is sent again, and no reply can come from a socket that was given up.
 */
export function hardened(socket: object | undefined, timeout: number, link: NodeRedisLink): object {
  return {
    disableOfflineQueue: true,
    // A full queue would refuse a release.
    commandsQueueMaxLength: undefined,
    // node-redis 6 arms a timer per command, which ends at the moment of writing. `CommandConnection` watches for silence.
    commandOptions: { timeout: undefined, typeMapping: undefined },
    // A ping of the library would hide that commands are not answered.
    pingInterval: undefined,
    // The namespace is our prefix; another one would be put before the hash tag of some keys and not of others.
    keyPrefix: undefined,
    // READONLY is for replicas.
    readonly: false,
    clientSideCache: undefined,
    emitInvalidate: undefined,
    // The client moves commands from one socket to another, and lets them wait.
    maintNotifications: 'disabled',
    // CLIENT SETINFO is for monitoring, and one more permission.
    disableClientInfo: true,
    socket: {
      ...socket,
      connectTimeout: connectTimeoutFor(timeout),
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE,
      socketTimeout: undefined,
      // Called as the socket ends, while `destroy` still works.
      reconnectStrategy: (_: number, cause: unknown) => {
        link.end(cause);
        return false;
      },
      // `destroy` does not reach a socket that is only being opened.
      signal: link.signal,
    },
  };
}

/** One socket of a connection, from the attempt to open it. */
export class NodeRedisLink {
  client: NodeRedisConnection | undefined;
  /** The channels that it listens to. */
  readonly channels = new Set<string>();
  /** Why it is over. */
  cause: unknown;
  isOver = false;
  /** Rejects when it is over. */
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

  /** Aborts when it is over. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** @throws LockConfigError for a client that is none of node-redis */
  async open(duplicate: () => NodeRedisConnection): Promise<NodeRedisConnection> {
    const client = duplicateOf(duplicate, ['connect', 'destroy', 'sendCommand', 'subscribe', 'on']);
    this.client = client;
    // Also of the decoder, after which the library would go on with this socket.
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
    this.cause = cause ?? new Error('The connection was given up.');
    destroy(this.client);
    this.#abort.abort();
    if (cause !== undefined) this.connection.emit('error', cause);
    this.connection.emit('close');
    this.connection.emit('end');
  }
}

/** node-redis 5 throws for a client that is not open. */
export function destroy(client: NodeRedisConnection | undefined): void {
  if (client?.isOpen === true) client.destroy();
}

/** A connection of our own, to the server that `open` finds for each link. */
export class NodeRedisLinkConnection extends EventEmitter implements RedisConnection {
  #link: NodeRedisLink | undefined;

  constructor(private readonly open: (link: NodeRedisLink) => Promise<unknown>) {
    super();
  }

  async connect(): Promise<void> {
    const link = new NodeRedisLink(this);
    this.#link = link;
    try {
      // node-redis 5 waits for credentials that do not come, also when it is destroyed.
      await Promise.race([this.open(link), link.ended]);
    } catch (cause) {
      link.end(cause);
    }
    // node-redis 5 resolves also for a client that was destroyed meanwhile.
    if (link.isOver) throw link.cause;
    this.emit('ready');
  }

  disconnect(): void {
    this.#link?.end();
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    return this.#ask((client) => client.sendCommand([command, ...args]));
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
      // The server of a Cluster ends a subscription when the slot leaves. node-redis may not have noticed, and then does not ask again.
      link.end(new Error(`The subscription to "${channel}" is made again, on a new connection.`));
    }
    await this.#ask((client) =>
      send(client, (message) => {
        if (link?.isOver === false) this.emit(event, channel, message);
      }),
    );
    link?.channels.add(channel);
  }

  #ask(send: (client: NodeRedisConnection) => Promise<unknown>): Promise<unknown> {
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
        // While the socket is open, only the server makes a command fail.
        throw link.isOver ? link.cause : nameError(error);
      },
    );
  }
}

/** node-redis does not name the errors of the server. */
function nameError(reply: unknown): unknown {
  if (reply instanceof Error) reply.name = REPLY_ERROR;
  return reply;
}
