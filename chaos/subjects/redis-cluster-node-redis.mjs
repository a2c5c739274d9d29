import { load, managed } from './lock-manager.mjs';
import { lifetime } from './redis-cluster.mjs';

/** Same as `redis-cluster`, but with a Cluster client of node-redis. */
export * from './redis-cluster.mjs';
export const title = 'redis, Cluster of three masters with a replica each, by node-redis';

export async function connect({ library, ports, realPorts }) {
  const { createCluster } = await import('redis');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const proxies = ports.map((port) => ({ host: '127.0.0.1', port }));
  // Nodes announce each other's real addresses, but each worker connects through its own proxies.
  const nodeAddressMap = Object.fromEntries(realPorts.map((port, index) => [`127.0.0.1:${port}`, proxies[index]]));
  const client = createCluster({ rootNodes: proxies.map((socket) => ({ socket })), nodeAddressMap });
  const provider = new RedisLockProvider({ client, commandTimeout: 500 });
  return managed({ library, provider, options: { lease: lifetime }, lifetime });
}
