import { LockConfigError } from '../../../api/errors.js';
import { type ConfiguredDuration, toMilliseconds } from '../../../api/duration.js';
import {
  hardenedFor,
  type RedisClient,
  type RedisClusterClient,
  type RedisConnection,
  withHeardSentinels,
} from './redis-client.js';

/**
 * Where Redis is: exactly one of `client`, `url`, `cluster` and `options` (which may also go with `cluster`).
 *
 * In each case the backend makes connections of its own to each server, one for commands and one for messages (and one more with
 * `waitReplicas`), and closes only those.
 */
export interface RedisLockProviderOptions {
  /** A client of ioredis 5 or 6: of a single server, of Sentinel, or of a Cluster. It is duplicated, never used or closed. */
  readonly client?: RedisClient | RedisClusterClient | undefined;
  /** Such as `redis://user:password@host:6379/0`; `rediss:` for TLS. Needs `ioredis`. */
  readonly url?: string | undefined;
  /** Nodes of a Redis Cluster, as the constructor of ioredis' `Cluster` takes them; its options are `options`. Needs `ioredis`. */
  readonly cluster?: readonly (string | { readonly host?: string; readonly port?: number })[] | undefined;
  /** The options of an ioredis client, for Sentinel (`sentinels` and `name`) and TLS. Needs `ioredis`. */
  readonly options?: object | undefined;
  /**
   * How many replicas must have a lock before it counts as held, and each renewal of it before it counts as renewed: `WAIT`. Default 0.
   *
   * With fewer, acquiring throws LockUnavailableError. It costs one more round trip per acquisition. A lock then survives a failover to a
   * replica that has acknowledged it. It is no consensus: where there are several replicas, one that has not may be promoted.
   */
  readonly waitReplicas?: number | undefined;
  /**
   * How long the server may be silent while commands are in flight, in ms, before the connection counts as dead and is made again.
   * Default 2 s, at least 50 ms.
   */
  readonly commandTimeout?: ConfiguredDuration | undefined;
}

/** The validated options. */
export interface RedisSettings {
  readonly source: RedisLockProviderOptions;
  /** How long a server may be silent while commands are in flight, in ms. */
  readonly commandTimeout: number;
  readonly waitReplicas: number;
}

/** @throws LockConfigError for options that cannot work. */
export function readOptions(options: RedisLockProviderOptions): RedisSettings {
  const { client, url, cluster, options: clientOptions, waitReplicas = 0 } = options;
  const given = [client, url, cluster ?? clientOptions].filter((source) => source !== undefined).length;
  if (given !== 1) {
    throw new LockConfigError(
      'RedisLockProvider needs exactly one of "client", "url", "cluster" and "options" ("options" may go with "cluster").',
    );
  }
  if (url !== undefined && !(typeof url === 'string' && URL.canParse(url))) {
    throw new LockConfigError('RedisLockProvider: "url" is not a URL: write it as redis://host:6379.');
  }
  if (client !== undefined && typeof (client as Partial<RedisClient> | null)?.duplicate !== 'function') {
    throw new LockConfigError(
      'RedisLockProvider: "client" is not an ioredis client (version 5 or 6): it cannot be duplicated.',
    );
  }
  if (cluster !== undefined && !(Array.isArray(cluster) && cluster.length > 0 && cluster.every(isNode))) {
    throw new LockConfigError('RedisLockProvider: "cluster" must list at least one node, such as { host, port }.');
  }
  // Anything but an object has no options, and would mean the server at localhost.
  if (clientOptions !== undefined && !isObject(clientOptions)) {
    throw new LockConfigError(
      'RedisLockProvider: "options" must be the options of an ioredis client, such as { host }.',
    );
  }
  if (!Number.isInteger(waitReplicas) || waitReplicas < 0) {
    throw new LockConfigError('RedisLockProvider: "waitReplicas" must be a whole number of replicas, 0 for none.');
  }
  const commandTimeout = toMilliseconds(options.commandTimeout ?? '2s', 'commandTimeout', { min: 50 });
  return { source: options, commandTimeout, waitReplicas };
}

function isNode(node: unknown): boolean {
  return typeof node === 'string' ? node !== '' : isObject(node);
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** Makes a connection, which does nothing before its `connect`. */
export type Connect = () => RedisConnection;

/** Connections to one server. @throws LockConfigError for a Cluster, and when `ioredis` is needed and not installed. */
export async function connectionsOf({ source, commandTimeout }: RedisSettings): Promise<Connect> {
  const { client, url, options } = source;
  const hardened = hardenedFor(commandTimeout);
  if (client) {
    if (isClusterClient(client)) {
      throw new LockConfigError(
        'A client of one server is needed here, and "client" is one of a Cluster: pass a client of one server.',
      );
    }
    return () => withHeardSentinels(client.duplicate(hardened));
  }
  const { Redis } = await loadIoredis();
  const lazy = { lazyConnect: true };
  // Duplicated as well: options in the query of a URL would otherwise come before ours.
  const template = url === undefined ? new Redis({ ...options, ...lazy }) : new Redis(url, lazy);
  return () => withHeardSentinels(template.duplicate(hardened));
}

export function isClusterClient(client: RedisClient | RedisClusterClient): client is RedisClusterClient {
  return 'isCluster' in client && client.isCluster;
}

interface Ioredis {
  readonly Redis: new (...args: [object] | [string, object]) => RedisClient;
  readonly Cluster: new (nodes: readonly unknown[], options: object) => RedisClusterClient;
}

/** @throws LockConfigError when `ioredis` is not installed. */
export async function loadIoredis(): Promise<Ioredis> {
  try {
    // An optional peer: imported only where the application did not pass a client.
    return (await import('ioredis')) as unknown as Ioredis;
  } catch (cause) {
    throw new LockConfigError(
      'RedisLockProvider needs the package "ioredis" for "url", "cluster" and "options": npm install ioredis.',
      { cause },
    );
  }
}
