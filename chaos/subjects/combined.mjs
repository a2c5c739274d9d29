import { load, managed } from './lock-manager.mjs';
import { CLIENT_FAULTS } from './client-faults.mjs';

const LEASE = 800;

export const title = 'combined, all of redis and typeorm version on mariadb';
/**
 * A lock that wasn't released ends with its lease, in one provider and then in the other. A frozen receiver adds a
 * provisional lease.
 */
export const recovery = 2 * LEASE + 3_000 + 4_000;
/** The queue of Redis lives as long as with Redis alone. */
export { cleanupWithin } from './redis.mjs';
export const lifetime = LEASE;
export const fair = false;
export const faults = [
  ...CLIENT_FAULTS,
  ...['one server half-open', 'one server refused'],
  ...['server paused', 'server restarted', 'server down', 'server flapping', 'all servers paused'],
  ...['server restarted empty', 'server clock stepped'],
];
/**
 * docs/providers/failover.md: it excludes other holders while at least one provider keeps its data, and these faults
 * delete only the data of Redis. It has no tokens, so nothing stops a holder that was paused between check and write.
 */
export const allows = Object.fromEntries(faults.map((name) => [name, ['stale']]));
export const excuse = 'There is no token with which the resource could reject an earlier holder';

export const startBackend = async ({ random }) => (await import('./redis-and-mariadb.mjs')).startBoth(random);

export async function connect({ library, ports: [redis, mariadb] }) {
  const { dataSourceOf, MEMBERS } = await import('./redis-and-mariadb.mjs');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const { TypeOrmVersionLockProvider } = await load(library, 'providers/typeorm/index.js');
  const { CombinedLockProvider } = await load(library, 'providers/combined/combined-lock-provider.js');
  const main = new CombinedLockProvider({ providers: MEMBERS });
  const providers = {
    redis: new RedisLockProvider({ url: `redis://127.0.0.1:${redis}`, commandTimeout: 500 }),
    mariadb: new TypeOrmVersionLockProvider({
      dataSource: dataSourceOf(mariadb),
      synchronize: true,
      commandTimeout: 500,
    }),
    main,
  };
  return managed({ library, provider: main, providers, options: { lease: LEASE }, lifetime });
}
