import { dataSource, leases, startSql } from './sql-backend.mjs';

/** The names of the providers that combined and failover are built on, in the order of the servers. */
export const MEMBERS = ['redis', 'mariadb'];

/** A Redis and a MariaDB, side by side. */
export async function startServers() {
  const { startRedis } = await import('./redis-backend.mjs');
  const [redis, mariadb] = await Promise.all([startRedis(), startSql('mariadb')]);
  return {
    servers: [...redis.servers, mariadb],
    providers: MEMBERS,
    async leftovers() {
      const left = await Promise.all([redis.leftovers(), leases(mariadb)]);
      // Acquired and released all the time, to see which provider answers.
      return left.flat().filter((name) => !name.endsWith(':probe'));
    },
    stop: () => Promise.all([redis.stop(), mariadb.stop()]),
  };
}

export const dataSourceOf = (port) => dataSource('mariadb', port);
