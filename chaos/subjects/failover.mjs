import { load, managed } from './lock-manager.mjs';

const WINDOW = 1_000;
/** How long a provider keeps the lock of a process that died: twice the window, at least 10 s. */
const LEASE = 10_000;

export const title = 'failover: redis, then typeorm version on mariadb, which is the casStore';
/**
 * A provider is found down, processes that are gone are counted out for a window, and a window passes; what a dead process held ends a
 * lease later, and a frozen receiver costs a provisional lease.
 */
export const recovery = 3 * WINDOW + LEASE + 3_000 + 4_000;
/** The queue of the one provider, as of Redis alone. */
export { forgets } from './redis.mjs';
export const lifetime = WINDOW;
/** By the next renewal, or at the deadline: as by its providers. */
export const toldWithin = WINDOW;
export const fair = false;
export const nemeses = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped', 'provider switched manually'],
  ...['wire delayed', 'requests lost', 'replies lost', 'wire half-open', 'wire reset', 'connections refused'],
  ...['one wire half-open', 'one wire refused'],
  ...['server paused', 'server restarted', 'server down', 'server flapping', 'all servers paused'],
  ...['server restarted empty', 'server clock stepped'],
];
/** docs/providers/failover.md: what a provider breaks while it is active, it breaks. A version lock in MariaDB breaks nothing. */
export const allows = { 'server restarted empty': ['overlap'], 'server clock stepped': ['overlap'] };

export const startBackend = async () => (await import('./several-servers.mjs')).startServers();

export async function connect({ library, ports: [redis, mariadb] }) {
  const { dataSourceOf, MEMBERS } = await import('./several-servers.mjs');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const { TypeOrmVersionLockProvider } = await load(library, 'providers/typeorm/index.js');
  const { FailoverProvider } = await load(library, 'providers/failover/failover-provider.js');
  let backend;
  class ObservedProvider extends FailoverProvider {
    createBackend(context) {
      backend = super.createBackend(context);
      return backend;
    }
  }
  const main = new ObservedProvider({
    providers: MEMBERS,
    casStore: 'mariadb',
    window: WINDOW,
    probeInterval: 400,
    // Back again as soon as possible: each switch is a chance to be wrong.
    failbackDelay: 400,
  });
  const providers = {
    redis: new RedisLockProvider({ url: `redis://127.0.0.1:${redis}`, commandTimeout: 200 }),
    mariadb: new TypeOrmVersionLockProvider({
      dataSource: dataSourceOf(mariadb),
      synchronize: true,
      statementTimeout: 300,
    }),
    main,
  };
  const locks = await managed({ library, provider: main, providers, lifetime });
  return { ...locks, switchTo: (provider) => backend.switchTo(provider) };
}
