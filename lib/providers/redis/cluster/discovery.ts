import { type RedisClient, type RedisClusterClient, type RedisClusterNode, withoutCommand } from '../redis-client.js';
import type { Address, NatMap } from './slot-map.js';

/** What is known of a Cluster once one of its nodes has answered. */
export interface KnownCluster {
  /** Any of its nodes: connections to the others are made like those to it. */
  readonly template: RedisClient;
  /** What it answered to `CLUSTER SLOTS`, and under which address it was asked. */
  readonly slots: unknown;
  readonly asked: Address;
  readonly natMap?: NatMap | undefined;
}

/**
 * Lets a Cluster client of our own find the nodes, with the application's start nodes, DNS and TLS, and closes it again.
 *
 * @throws when no node answers.
 */
export async function findCluster(client: RedisClusterClient, patience: number): Promise<KnownCluster> {
  const finder = client.duplicate([], {
    lazyConnect: true,
    enableReadyCheck: false,
    clusterRetryStrategy: () => null,
    slotsRefreshInterval: undefined,
    slotsRefreshTimeout: patience,
    shardedSubscribers: false,
    redisOptions: { connectTimeout: patience, commandTimeout: patience, disableClientInfo: true },
  });
  let cause: unknown;
  // Of the last node that was asked in vain: what the client itself rejects with says nothing.
  finder.on('node error', (error) => {
    cause = error;
  });
  finder.on('error', () => undefined);
  try {
    await finder.connect();
    const { natMap } = finder.options as { natMap?: NatMap };
    for (const node of finder.nodes()) {
      try {
        return { template: node, slots: await node.call('cluster', 'SLOTS'), asked: addressOf(node), natMap };
      } catch (error) {
        cause = error;
      }
    }
  } catch (error) {
    cause ??= error;
  } finally {
    finder.disconnect();
  }
  throw new Error('No node of the Cluster tells its slots.', { cause: withoutCommand(cause) });
}

function addressOf({ options }: RedisClusterNode): Address {
  const { host = '127.0.0.1', port = 6379 } = options as Partial<Address>;
  return { host, port };
}
