import { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import { createClient, createCluster, createSentinel } from 'redis';
import { createClient as createClient5, createCluster as createCluster5 } from 'redis5';
import type { RedisConnectionOptions, RedisServerOptions } from '../../lib/providers/redis/index.js';

interface Address {
  readonly host: string;
  readonly port: number;
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

interface ClusterSettings {
  readonly natMap?: Record<string, Address>;
  readonly credentials?: Credentials | undefined;
}

/** Connects to the same servers with one of the client libraries. */
export interface ClientLibrary {
  server(url: string): RedisServerOptions;
  cluster(nodes: readonly Address[], settings?: ClusterSettings): RedisConnectionOptions;
  sentinel(options: { readonly sentinels: Address[]; readonly name: string }): RedisConnectionOptions;
  toString(): string;
}

function clusterOptions(nodes: readonly Address[], { natMap, credentials }: ClusterSettings) {
  return {
    rootNodes: nodes.map((socket) => ({ socket })),
    ...(natMap && { nodeAddressMap: natMap }),
    ...(credentials && { defaults: credentials }),
  };
}

export const IOREDIS: ClientLibrary = {
  server: (url) => ({ url }),
  cluster: (nodes, { natMap, credentials } = {}) => ({
    cluster: nodes,
    options: { natMap, redisOptions: credentials },
  }),
  sentinel: (options) => ({ options }),
  toString: () => 'ioredis',
};

/** The Cluster client of ioredis 5 drops the node options that a duplicate overrides. */
export const IOREDIS_5: ClientLibrary = {
  server: (url) => ({ client: new Redis5(url, { lazyConnect: true }) }),
  cluster: (nodes, { natMap, credentials = {} } = {}) => ({
    client: new Cluster5([...nodes], {
      ...(natMap && { natMap }),
      redisOptions: { ...credentials },
      lazyConnect: true,
    }),
  }),
  sentinel: (options) => ({ client: new Redis5({ ...options, lazyConnect: true }) }),
  toString: () => 'ioredis 5',
};

// node-redis creates a class with all commands for each set of options, which took half of the CPU time of some tests.
// A duplicate creates none.
const template = createClient();
const template5 = createClient5();

export const NODE_REDIS: ClientLibrary = {
  server: (url) => ({ client: template.duplicate({ url }) }),
  cluster: (nodes, settings = {}) => ({ client: createCluster(clusterOptions(nodes, settings)) }),
  sentinel: ({ sentinels, name }) => ({ client: createSentinel({ name, sentinelRootNodes: sentinels }) }),
  toString: () => 'node-redis',
};

/** node-redis 5 speaks RESP 2 by default, and does not expose the options of a Sentinel client. */
export const NODE_REDIS_5: ClientLibrary = {
  server: (url) => ({ client: template5.duplicate({ url }) }),
  cluster: (nodes, settings = {}) => ({ client: createCluster5(clusterOptions(nodes, settings)) }),
  sentinel: ({ sentinels, name }) => ({ options: { name, sentinelRootNodes: sentinels } }),
  toString: () => 'node-redis 5',
};
