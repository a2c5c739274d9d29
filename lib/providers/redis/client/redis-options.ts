import { LockConfigError } from '../../../api/errors.js';
import { shown } from '../../../api/printable.js';
import type { ConfiguredDuration } from '../../../api/duration.js';
import type { Random } from '../../../api/random.js';
import {
  count,
  duration,
  foreign,
  group,
  listOf,
  type OptionTable,
  type Owner,
  read,
  refuse,
  secret,
  text,
} from '../../../core/toolkit/options.js';
import {
  type Ioredis,
  type IoredisClient,
  type IoredisCluster,
  ioredisCluster,
  ioredisConnections,
} from './ioredis.js';
import {
  type NodeRedis,
  type NodeRedisClient,
  type NodeRedisCluster,
  nodeRedisCluster,
  type NodeRedisClusterOptions,
  nodeRedisConnections,
  nodeRedisOptionsOf,
  type NodeRedisSentinel,
} from './node-redis.js';
import { nodeRedisSentinel, type NodeRedisSentinelOptions } from './node-redis-sentinel.js';
import type { Topology } from './open-connection.js';
import { type Connect, type FindCluster, notAClient } from './redis-connection.js';
import { addressOf } from './redis-url.js';

/**
 * A client of `ioredis` or `redis` (node-redis), version 5 or 6, for a single server, Sentinel or a Cluster. The types
 * are structural.
 */
export type RedisClient = IoredisClient | IoredisCluster | NodeRedisClient | NodeRedisSentinel | NodeRedisCluster;

// `url` is the last member, because the compiler reports a mismatch against the last one, and most users pass a URL.
/** One server, or the master that Sentinel reports: exactly one of `client`, `url`, and `options`. */
export type RedisServerOptions =
  | {
      /**
       * A client of `ioredis` or `redis` (node-redis), version 5 or 6, for a single server, Sentinel or a Cluster. The
       * provider opens its own connections with the client's options, and never uses or closes the client. node-redis 5
       * doesn't expose the options of a Sentinel client, so pass them as `options` instead.
       */
      readonly client: RedisClient;
      readonly url?: undefined;
      readonly options?: undefined;
    }
  | {
      /**
       * Client options, for example for Sentinel or TLS. Options with `url`, `socket`, `sentinelRootNodes`, or
       * `defaults` are passed to node-redis. All others go to the installed library, or to `ioredis` if both are
       * installed.
       */
      readonly options: object;
      readonly client?: undefined;
      readonly url?: undefined;
    }
  | {
      /**
       * `redis://user:password@host:6379/0`, or `rediss://` for TLS. Needs `ioredis` or `redis`. If both are installed,
       * `ioredis` is used.
       */
      readonly url: string;
      readonly client?: undefined;
      readonly options?: undefined;
    };

/**
 * How to connect to Redis: exactly one of `client`, `url`, `cluster`, and `options`. You can combine `options` with
 * `cluster`.
 *
 * The provider always opens its own connections to each server: one for commands, one for messages, and another if
 * `waitReplicas` is set. It closes only its own.
 */
export type RedisConnectionOptions =
  | {
      /**
       * Start nodes of a Redis Cluster, as `{ host, port }` or URLs. Needs `ioredis` or `redis`. `options` are passed
       * to the library's Cluster client.
       */
      readonly cluster: readonly (string | { readonly host?: string; readonly port?: number })[];
      readonly options?: object | undefined;
      readonly client?: undefined;
      readonly url?: undefined;
    }
  | (RedisServerOptions & { readonly cluster?: undefined });

/** Controls how locks on Redis work. */
export interface RedisLockOptions {
  /**
   * How many replicas must acknowledge a lock, and each renewal, before it counts (`WAIT`). Default 0.
   *
   * If fewer acknowledge it, acquiring throws LockUnavailableError. Each acquisition takes an extra round trip. The
   * lock then survives a failover to a replica that has acknowledged it. This is not consensus: with several replicas,
   * one without the lock may be promoted.
   */
  readonly waitReplicas?: number | undefined;
  /**
   * How long the server may take to reply while commands are in flight, in ms, before the provider drops the connection
   * and reconnects. Default 2 s, at least 50 ms and at most 24.8 days.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
}

export type RedisLockProviderOptions = RedisLockOptions & RedisConnectionOptions;

/** The validated options. */
export interface RedisSettings {
  readonly source: RedisConnectionOptions;
  readonly commandTimeout: number;
  readonly waitReplicas: number;
}

/** The options that locate one server. */
export const SERVER = {
  client: secret('an ioredis or redis client', clientOf).written(),
  url: secret('an address', addressOf).written(),
  options: foreign(
    'the options for an ioredis or redis client, such as { host } or { socket: { host } }; pass an address as "url"',
    (options, owner, name) => {
      // Anything other than an object would be ignored, and we would connect to localhost.
      if (!isObject(options)) return undefined;
      assertDatabase(owner, name, options);
      return options;
    },
  ).written(),
} satisfies OptionTable<RedisServerOptions>;

const NODE = group('{ host, port } or a URL', { host: text('a name or an address').written(), port: count(1) });
const OPTIONS = {
  ...SERVER,
  cluster: listOf(
    'a list of at least one node, such as { host, port } or a URL',
    secret<object | string>(NODE.wanted, (node, owner, name) => {
      if (typeof node !== 'string') return NODE.read(node, owner, name);
      return node.includes('://') ? addressOf(node, owner, name) : node || undefined;
    }),
  ).written(),
  waitReplicas: count(0, 'a whole number of replicas, 0 for none').or(0),
  commandTimeout: duration({ min: 50 }).or('2s'),
} satisfies OptionTable<RedisLockProviderOptions>;

/** The owner of the options that locate a server, for error messages. */
export const SERVER_OWNER = {
  example: "{ url: 'redis://localhost:6379' } or { options: { host: 'localhost', port: 6379 } }",
  others: 'put client options in "options"',
} satisfies Owner;

/** @throws LockConfigError for invalid options */
export function readOptions(options: RedisLockProviderOptions): RedisSettings {
  const { cluster } = Object(options) as Partial<RedisLockProviderOptions>;
  // If "cluster" is set, "options" configures the Cluster client and doesn't locate another server.
  const oneOf = ['client', 'url', 'cluster', ...(cluster === undefined ? ['options'] : [])];
  const owner = { ...SERVER_OWNER, name: 'RedisLockProvider', oneOf };
  const { waitReplicas, commandTimeout } = read(owner, options, OPTIONS);
  return { source: options, commandTimeout, waitReplicas };
}

/** Rejects anything that is not a whole number: NaN would make ioredis end the process. */
function assertDatabase(owner: Owner, from: string, options: unknown): void {
  if (!isObject(options)) return;
  const { db, database } = options as Readonly<Record<string, unknown>>;
  for (const [name, value] of Object.entries({ db, database })) {
    if (value === undefined || value === null || isWholeNumber(value)) continue;
    refuse(owner, `${from}.${name}`, `is ${shown(value)}, but must be a database number, such as 0.`);
  }
}

function isWholeNumber(value: unknown): boolean {
  return (typeof value === 'number' || typeof value === 'string') && /^\d+$/.test(String(value));
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Checks a client as far as possible without connecting. @throws LockConfigError */
function clientOf(given: unknown, owner: Owner, name: string): RedisClient {
  let place = `${owner.name}: "${name}"`;
  try {
    const client = Object(given) as RedisClient & { readonly options?: unknown };
    // A string may be an address with a password, so it is not quoted.
    place += `, which is ${typeof given === 'string' ? 'a string' : shown(given)},`;
    // Reads the client's properties, which may throw if the client is a proxy.
    isCluster({ source: { client } });
    if (typeof client.duplicate !== 'function') throw notAClient(undefined, place);
    assertDatabase(owner, name, client.options);
    return client;
  } catch (cause) {
    throw cause instanceof LockConfigError ? cause : notAClient(cause, place);
  }
}

/** Whether the options point to a Cluster. */
export function isCluster({ source: { client, cluster } }: Pick<RedisSettings, 'source'>): boolean {
  return cluster !== undefined || (client !== undefined && (isIoredisCluster(client) || isNodeRedisCluster(client)));
}

/** The kind of server that the options point to. */
export function topologyOf(settings: Pick<RedisSettings, 'source'>): Topology {
  if (isCluster(settings)) return 'cluster';
  const { client, options = client && 'options' in client ? client.options : undefined } = settings.source;
  const isSentinel = client !== undefined && isNodeRedisSentinel(client);
  return isSentinel || ['sentinels', 'sentinelRootNodes'].some((each) => isGiven(options, each))
    ? 'sentinel'
    : 'server';
}

function isGiven(options: unknown, name: string): boolean {
  const value = isObject(options) ? (options as Readonly<Record<string, unknown>>)[name] : undefined;
  return value !== undefined && value !== null;
}

/**
 * Makes connections to one server, if {@link isCluster} is false.
 *
 * @throws LockConfigError if the library is not installed.
 */
export async function connectionsOf({ source, commandTimeout }: RedisSettings, random: Random): Promise<Connect> {
  const { client, url, options } = source;
  if (client) {
    if (isNodeRedisSentinel(client)) {
      const read = nodeRedisOptionsOf(client, 'sentinelRootNodes') as NodeRedisSentinelOptions;
      return nodeRedisSentinel(await loadNodeRedis(), read, random, commandTimeout);
    }
    return isNodeRedis(client)
      ? nodeRedisConnections(client as NodeRedisClient, commandTimeout)
      : ioredisConnections(() => client as IoredisClient, random, commandTimeout);
  }
  const { ioredis, nodeRedis } = await loadLibrary(options);
  if (ioredis) {
    const lazy = { lazyConnect: true };
    // We duplicate this client, like an application's. Otherwise, options in a URL's query string would override ours.
    const template = () =>
      url === undefined ? new ioredis.Redis({ ...options, ...lazy }) : new ioredis.Redis(url, lazy);
    return ioredisConnections(template, random, commandTimeout);
  }
  return options && 'sentinelRootNodes' in options
    ? nodeRedisSentinel(nodeRedis, options as NodeRedisSentinelOptions, random, commandTimeout)
    : nodeRedisConnections(nodeRedis.createClient(url === undefined ? { ...options } : { url }), commandTimeout);
}

/** Finds a Cluster's nodes. @throws LockConfigError if the library is not installed. */
export async function clusterOf({ source, commandTimeout }: RedisSettings, random: Random): Promise<FindCluster> {
  const { client, cluster = [], options } = source;
  if (client) {
    if (!isNodeRedis(client)) return ioredisCluster(() => client as IoredisCluster, random, commandTimeout);
    const read = nodeRedisOptionsOf(client as NodeRedisCluster, 'rootNodes') as NodeRedisClusterOptions;
    return nodeRedisCluster(await loadNodeRedis(), read, commandTimeout);
  }
  const { ioredis, nodeRedis } = await loadLibrary(options);
  if (ioredis) {
    const template = () => new ioredis.Cluster(cluster, { ...options, lazyConnect: true });
    return ioredisCluster(template, random, commandTimeout);
  }
  const rootNodes = cluster.map((node) => (typeof node === 'string' ? { url: node } : { socket: node }));
  return nodeRedisCluster(nodeRedis, { ...options, rootNodes }, commandTimeout);
}

function isIoredisCluster(client: RedisClient): client is IoredisCluster {
  return 'isCluster' in client && client.isCluster;
}

// Every node-redis client since version 5 has this method; no ioredis client does.
function isNodeRedis(client: RedisClient): boolean {
  return 'withTypeMapping' in client;
}

function isNodeRedisSentinel(client: RedisClient): client is NodeRedisSentinel {
  return isNodeRedis(client) && 'getMasterNode' in client;
}

function isNodeRedisCluster(client: RedisClient): client is NodeRedisCluster {
  return isNodeRedis(client) && 'masters' in client;
}

type Library =
  | { readonly ioredis: Ioredis; readonly nodeRedis?: undefined }
  | { readonly ioredis?: undefined; readonly nodeRedis: NodeRedis };

/**
 * Imports the client library. Both libraries are optional peers, so this is called only if the application passed no
 * client.
 *
 * @throws LockConfigError if neither is installed
 */
async function loadLibrary(options: object | undefined): Promise<Library> {
  // ioredis would ignore these options and connect to localhost.
  if (options && ['socket', 'sentinelRootNodes', 'defaults', 'url'].some((each) => each in options)) {
    return { nodeRedis: await loadNodeRedis() };
  }
  const ioredis = (await import('ioredis').catch(() => undefined)) as Partial<Ioredis> | undefined;
  if (ioredis === undefined) return { nodeRedis: await loadNodeRedis('"ioredis" or "redis"') };
  if (typeof ioredis.Redis !== 'function') {
    throw new LockConfigError(
      'RedisLockProvider needs ioredis 5 or 6, but the loaded "ioredis" does not export Redis, so it is a mock or an old version. Pass a "client". In tests, use MemoryLockProvider instead of a mock.',
    );
  }
  return { ioredis: ioredis as Ioredis };
}

/** @throws LockConfigError if it is not installed */
async function loadNodeRedis(needed = '"redis"'): Promise<NodeRedis> {
  try {
    return await import('redis');
  } catch (cause) {
    throw new LockConfigError(
      `RedisLockProvider needs the ${needed} package for "url", "cluster", or "options", and for a node-redis Sentinel or Cluster client: npm install ${needed.split(' ')[0]?.replaceAll('"', '') ?? ''}.`,
      { cause },
    );
  }
}
