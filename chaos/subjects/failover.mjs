import { load, managed } from './lock-manager.mjs';
import { CLIENT_FAULTS } from './client-faults.mjs';

const WINDOW = 1_000;
/** How long a provider keeps the lock of a dead process: twice the window, at least 10 s. */
const LEASE = 10_000;

export const title = 'failover: redis, then typeorm version on mariadb, which is the casStore';
/**
 * Three windows: to notice that a provider is down, to stop counting processes that are gone, and to switch. A dead
 * process's lock ends one lease later, and a frozen receiver adds a provisional lease.
 */
export const recovery = 3 * WINDOW + LEASE + 3_000 + 4_000;
/** The queue of Redis lives as long as with Redis alone. */
export { cleanupWithin } from './redis.mjs';
export const lifetime = WINDOW;
/** By the next renewal or at the deadline, as with its providers alone. */
export const noticedWithin = WINDOW;
export const fair = false;
export const faults = [
  ...CLIENT_FAULTS,
  'provider switched manually',
  ...['one server half-open', 'one server refused'],
  ...['server paused', 'server restarted', 'server down', 'server flapping', 'all servers paused'],
  ...['server restarted empty', 'server clock stepped'],
];
/**
 * docs/providers/failover.md: its locks are only as good as the active provider's locks, so the faults of Redis apply.
 * A version lock in MariaDB has none.
 */
export const allows = { 'server restarted empty': ['overlap'], 'server clock stepped': ['overlap'] };
export { excuse } from './redis.mjs';

export const startBackend = async ({ random }) => (await import('./redis-and-mariadb.mjs')).startBoth(random);

export async function connect({ library, ports: [redis, mariadb] }) {
  const { dataSourceOf, MEMBERS } = await import('./redis-and-mariadb.mjs');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const { TypeOrmVersionLockProvider } = await load(library, 'providers/typeorm/index.js');
  const { FailoverLockProvider } = await load(library, 'providers/failover/failover-lock-provider.js');
  let backend;
  class ObservedProvider extends FailoverLockProvider {
    createBackend(context) {
      backend = super.createBackend(context);
      return backend;
    }
  }
  const main = new ObservedProvider({ providers: MEMBERS, casStore: 'mariadb', window: WINDOW });
  // Switch back as soon as possible, to provoke as many switches as possible: each one can go wrong.
  Object.assign(main.settings, { probeInterval: 400, failbackDelay: 400 });
  const providers = {
    redis: new RedisLockProvider({ url: `redis://127.0.0.1:${redis}`, commandTimeout: 200 }),
    mariadb: new TypeOrmVersionLockProvider({
      dataSource: dataSourceOf(mariadb),
      synchronize: true,
      commandTimeout: 300,
    }),
    main,
  };
  const locks = await managed({ library, provider: main, providers, lifetime });
  return { ...locks, switchTo: (provider) => backend.switchTo(provider) };
}
