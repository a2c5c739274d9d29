import { dataSource, leases, startSql } from './sql-server.mjs';

/** The names of the providers that combined and failover are built on, in the order of the servers. */
export const MEMBERS = ['redis', 'mariadb'];

/** Starts one Redis server and one MariaDB server. */
export async function startBoth(random) {
  const { startRedis } = await import('./redis-node.mjs');
  const [redis, mariadb] = await Promise.all([startRedis(), startSql('mariadb', random)]);
  return {
    servers: [...redis.servers, mariadb],
    providers: MEMBERS,
    conditions: mariadb.conditions,
    async remainingLocks() {
      const remaining = await Promise.all([redis.remainingLocks(), leases(mariadb)]);
      // Failover constantly acquires and releases this key, to see whether a provider responds.
      return remaining.flat().filter((name) => !name.endsWith(':probe'));
    },
    stop: () => Promise.all([redis.stop(), mariadb.stop()]),
  };
}

export const dataSourceOf = (port) => dataSource('mariadb', port);
