import {
  type RedisClient,
  type RedisClusterClient,
  type RedisClusterNode,
  withoutCommand,
} from '../client/redis-client.js';

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** The address that `CLUSTER SLOTS` means, seen from this process. */
export type NatMap = Readonly<Record<string, Address>> | ((key: string) => Address | null);

/** A Cluster of which one node has answered. */
export interface KnownCluster {
  /** Any of its nodes: connections to the others are made like those to it. */
  readonly template: RedisClient;
  /** Its answer to `CLUSTER SLOTS`, and the address under which it was asked. */
  readonly slots: unknown;
  readonly asked: Address;
  readonly natMap?: NatMap | undefined;
}

/**
 * Lets a Cluster client of our own find the nodes, with the application's start nodes, DNS and TLS, and closes it again.
 *
 * @throws when no node answers.
 */
export async function findCluster(client: RedisClusterClient, timeout: number): Promise<KnownCluster> {
  const finder = client.duplicate([], {
    lazyConnect: true,
    enableReadyCheck: false,
    clusterRetryStrategy: () => null,
    slotsRefreshInterval: undefined,
    slotsRefreshTimeout: timeout,
    shardedSubscribers: false,
    redisOptions: { connectTimeout: timeout, commandTimeout: timeout, disableClientInfo: true },
  });
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
  throw new Error('No node of the Cluster reports its slots.', { cause: withoutCommand(cause) });
}

function addressOf({ options }: RedisClusterNode): Address {
  const { host = '127.0.0.1', port = 6379 } = options as Partial<Address>;
  return { host, port };
}
