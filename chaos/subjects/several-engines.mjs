import { dataSource, leases, startSql } from './sql-backend.mjs';

/** The names of the providers that the composed ones stand on, in the order of the servers. */
export const ENGINES = ['redis', 'mariadb'];

/** A Redis and a MariaDB, side by side. */
export async function startEngines() {
  const { startRedis } = await import('./redis-backend.mjs');
  const [redis, mariadb] = await Promise.all([startRedis(), startSql('mariadb')]);
  return {
    servers: [...redis.servers, mariadb],
    engines: ENGINES,
    async leftovers() {
      const left = await Promise.all([redis.leftovers(), leases(mariadb)]);
      // Taken and given back all the time, to see who answers.
      return left.flat().filter((name) => !name.endsWith(':probe'));
    },
    stop: () => Promise.all([redis.stop(), mariadb.stop()]),
  };
}

export const dataSourceOf = (port) => dataSource('mariadb', port);
