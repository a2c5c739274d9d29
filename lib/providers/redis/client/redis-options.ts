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

/** A client of ioredis 5 or 6 or of `redis` 5 or 6 (node-redis), by its structure: of a single server, of Sentinel, or of a Cluster. */
export type RedisClient = IoredisClient | IoredisCluster | NodeRedisClient | NodeRedisSentinel | NodeRedisCluster;

// The compiler explains an address that does not fit by the last member, and most users give a URL.
/** One server, or the master that Sentinel names: exactly one of `client`, `url` and `options`. */
export type RedisServerOptions =
  | {
      /**
       * A client of ioredis 5 or 6, or of `redis` 5 or 6 (node-redis): of a single server, of Sentinel, or of a Cluster. Connections are made
       * with its options; the client itself is never used or closed. node-redis 5 does not show those of a Sentinel client: pass them as `options`.
       */
      readonly client: RedisClient;
      readonly url?: undefined;
      readonly options?: undefined;
    }
  | {
      /**
       * The options of a client, for Sentinel and TLS. Those of node-redis are known by `socket`, `sentinelRootNodes` or `defaults`; all others
       * are those of the library that is installed, of `ioredis` with both.
       */
      readonly options: object;
      readonly client?: undefined;
      readonly url?: undefined;
    }
  | {
      /** `redis://user:password@host:6379/0`, or `rediss://` for TLS. Needs `ioredis` or `redis`; with both, `ioredis` is used. */
      readonly url: string;
      readonly client?: undefined;
      readonly options?: undefined;
    };

/**
 * Where Redis is: exactly one of `client`, `url`, `cluster` and `options` (which may also go with `cluster`).
 *
 * In each case the backend makes connections of its own to each server, one for commands and one for messages (and one more with
 * `waitReplicas`), and closes only those.
 */
export type RedisConnectionOptions =
  | {
      /** Start nodes of a Redis Cluster, as `{ host, port }` or URLs. Needs `ioredis` or `redis`; `options` are those of its Cluster client. */
      readonly cluster: readonly (string | { readonly host?: string; readonly port?: number })[];
      readonly options?: object | undefined;
      readonly client?: undefined;
      readonly url?: undefined;
    }
  | (RedisServerOptions & { readonly cluster?: undefined });

/** How locks on Redis work. */
export interface RedisLockOptions {
  /**
   * How many replicas must have a lock before it counts as held, and each renewal of it before it counts as renewed: `WAIT`. Default 0.
   *
   * With fewer, acquiring throws LockUnavailableError. It costs one more round trip per acquisition. A lock then survives a failover to a
   * replica that has acknowledged it. It is no consensus: where there are several replicas, one that has not may be promoted.
   */
  readonly waitReplicas?: number | undefined;
  /**
   * How long the server may be silent while commands are in flight, in ms, before the connection counts as dead and is made again.
   * Default 2 s, at least 50 ms and at most 24.8 days.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
}

export type RedisLockProviderOptions = RedisLockOptions & RedisConnectionOptions;

/** The validated options. */
export interface RedisSettings {
  readonly source: RedisConnectionOptions;
  /** How long a server may be silent while commands are in flight, in ms. */
  readonly commandTimeout: number;
  readonly waitReplicas: number;
}

/** Where one server is. */
export const SERVER = {
  client: secret('a client of ioredis or redis', clientOf).written(),
  url: secret('an address', addressOf).written(),
  options: foreign(
    'the options of a client of ioredis or redis, such as { host } or { socket: { host } }; an address is given as "url"',
    (options, owner, name) => {
      // Anything but an object has no options, and would mean the server at localhost.
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

/** The owner of the address of a server. */
export const SERVER_OWNER = {
  example: "{ url: 'redis://localhost:6379' } or { options: { host: 'localhost', port: 6379 } }",
  others: 'those of a client belong into "options"',
} satisfies Owner;

/** @throws LockConfigError for options that cannot work */
export function readOptions(options: RedisLockProviderOptions): RedisSettings {
  const { cluster } = Object(options) as Partial<RedisLockProviderOptions>;
  // With "cluster" they are those of its client, and name no other server.
  const oneOf = ['client', 'url', 'cluster', ...(cluster === undefined ? ['options'] : [])];
  const owner = { ...SERVER_OWNER, name: 'RedisLockProvider', oneOf };
  const { waitReplicas, commandTimeout } = read(owner, options, OPTIONS);
  return { source: options, commandTimeout, waitReplicas };
}

/** A client takes no other number: ioredis ends the process for NaN. */
function assertDatabase(owner: Owner, from: string, options: unknown): void {
  if (!isObject(options)) return;
  const { db, database } = options as Readonly<Record<string, unknown>>;
  for (const [name, value] of Object.entries({ db, database })) {
    if (value === undefined || value === null || isWholeNumber(value)) continue;
    refuse(owner, `${from}.${name}`, `is ${shown(value)}, but must be the number of a database, such as 0.`);
  }
}

function isWholeNumber(value: unknown): boolean {
  return (typeof value === 'number' || typeof value === 'string') && /^\d+$/.test(String(value));
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** A fault that only its connections show is found at the start. @throws LockConfigError */
function clientOf(given: unknown, owner: Owner, name: string): RedisClient {
  let place = `${owner.name}: "${name}"`;
  try {
    const client = Object(given) as RedisClient & { readonly options?: unknown };
    // An address may have a password, so it is not shown.
    place += `, which is ${typeof given === 'string' ? 'a text' : shown(given)},`;
    // Its parts are read, which a proxy may refuse.
    isCluster({ source: { client } });
    if (typeof client.duplicate !== 'function') throw notAClient(undefined, place);
    assertDatabase(owner, name, client.options);
    return client;
  } catch (cause) {
    throw cause instanceof LockConfigError ? cause : notAClient(cause, place);
  }
}

/** Whether these are the servers of a Cluster. */
export function isCluster({ source: { client, cluster } }: Pick<RedisSettings, 'source'>): boolean {
  return cluster !== undefined || (client !== undefined && (isIoredisCluster(client) || isNodeRedisCluster(client)));
}

/** The kind of server behind the addresses. */
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

/** Connections to one server. @throws LockConfigError for a Cluster, and when a library is needed and not installed. */
export async function connectionsOf(settings: RedisSettings, random: Random): Promise<Connect> {
  const { source, commandTimeout } = settings;
  const { client, url, options } = source;
  if (isCluster(settings)) {
    throw new LockConfigError(
      'A client of one server is needed here, and "client" is one of a Cluster: pass a client of one server.',
    );
  }
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
    // Duplicated as well: options in the query of a URL would otherwise come before ours.
    const template = () =>
      url === undefined ? new ioredis.Redis({ ...options, ...lazy }) : new ioredis.Redis(url, lazy);
    return ioredisConnections(template, random, commandTimeout);
  }
  return options && 'sentinelRootNodes' in options
    ? nodeRedisSentinel(nodeRedis, options as NodeRedisSentinelOptions, random, commandTimeout)
    : nodeRedisConnections(nodeRedis.createClient(url === undefined ? { ...options } : { url }), commandTimeout);
}

/** How the nodes of a Cluster are found. @throws LockConfigError when a library is needed and not installed. */
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

// Every client of node-redis has it since version 5, and none of ioredis.
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
 * Imported only where the application did not pass a client, because both are optional peers.
 *
 * @throws LockConfigError when neither is installed.
 */
async function loadLibrary(options: object | undefined): Promise<Library> {
  // ioredis would take no notice of them, and connect to localhost.
  if (options && ['socket', 'sentinelRootNodes', 'defaults'].some((each) => each in options)) {
    return { nodeRedis: await loadNodeRedis() };
  }
  const ioredis = (await import('ioredis').catch(() => undefined)) as Partial<Ioredis> | undefined;
  if (ioredis === undefined) return { nodeRedis: await loadNodeRedis('"ioredis" or "redis"') };
  if (typeof ioredis.Redis !== 'function') {
    throw new LockConfigError(
      'RedisLockProvider needs ioredis 5 or 6, and the package "ioredis" that is loaded exports no Redis, as a mock or an old version: pass a "client", or mock nothing and use MemoryLockProvider.',
    );
  }
  return { ioredis: ioredis as Ioredis };
}

/** @throws LockConfigError when it is not installed. */
async function loadNodeRedis(needed = '"redis"'): Promise<NodeRedis> {
  try {
    return await import('redis');
  } catch (cause) {
    throw new LockConfigError(
      `RedisLockProvider needs the package ${needed} for "url", "cluster", "options", and for a Sentinel or Cluster client of node-redis: npm install ${needed.split(' ')[0]?.replaceAll('"', '') ?? ''}.`,
      { cause },
    );
  }
}
