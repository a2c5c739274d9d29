import { load, managed } from './lock-manager.mjs';

const LEASE = 800;

export const title = 'combined, all of redis and typeorm version on mariadb';
/** A part that was not given back ends with its lease, in the one engine and then in the other; a frozen receiver costs a claim. */
export const recovery = 2 * LEASE + 3_000 + 4_000;
/** The queue of the one engine, as of Redis alone. */
export { forgets } from './redis.mjs';
export const lifetime = LEASE;
export const fair = false;
export const nemeses = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped'],
  ...['wire delayed', 'requests lost', 'replies lost', 'wire half-open', 'wire reset', 'connections refused'],
  ...['one wire half-open', 'one wire refused'],
  ...['server paused', 'server restarted', 'server down', 'server flapping', 'all servers paused'],
  ...['server restarted empty', 'server clock stepped'],
];
/**
 * docs/providers/combined.md: it excludes while at least one engine keeps its data, and only Redis is robbed of its own. It has no
 * tokens, so nothing holds up who was paused between check and write.
 */
export const allows = Object.fromEntries(nemeses.map((name) => [name, ['stale']]));

export const startBackend = async () => (await import('./several-engines.mjs')).startEngines();

export async function connect({ library, ports: [redis, mariadb] }) {
  const { dataSourceOf, ENGINES } = await import('./several-engines.mjs');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const { TypeOrmVersionLockProvider } = await load(library, 'providers/typeorm/index.js');
  const { CombinedProvider } = await load(library, 'providers/combined/combined-provider.js');
  const main = new CombinedProvider({ engines: ENGINES, quorum: 'all' });
  const providers = {
    redis: new RedisLockProvider({ url: `redis://127.0.0.1:${redis}`, commandTimeout: 500 }),
    mariadb: new TypeOrmVersionLockProvider({
      dataSource: dataSourceOf(mariadb),
      synchronize: true,
      statementTimeout: 500,
    }),
    main,
  };
  return managed({ library, provider: main, providers, options: { lease: LEASE }, lifetime });
}
