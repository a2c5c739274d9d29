import { load, managed } from './lock-manager.mjs';

const WINDOW = 1_000;
/** How long an engine keeps the lock of a process that died. */
const LEASE = 1_000;

export const title = 'fail-over, strict: redis, then typeorm version on mariadb, which keeps the record';
/** An engine is missed, a window passes; what a dead process held ends a lease later, and a frozen receiver costs a claim. */
export const recovery = 2 * WINDOW + LEASE + 3_000 + 4_000;
/** The queue of the one engine, as of Redis alone. */
export { forgets } from './redis.mjs';
export const lifetime = WINDOW;
/** By the next renewal, or at the deadline: as by its engines. */
export const toldWithin = WINDOW;
export const fair = false;
export const nemeses = [
  ...['worker killed', 'worker paused', 'event loop blocked', 'client clock stepped', 'engine switched by hand'],
  ...['wire delayed', 'requests lost', 'replies lost', 'wire half-open', 'wire reset', 'connections refused'],
  ...['one wire half-open', 'one wire refused'],
  ...['server paused', 'server restarted', 'server down', 'server flapping', 'all servers paused'],
  ...['server restarted empty', 'server clock stepped'],
];
/** docs/providers/failover.md: what an engine breaks while it is active, it breaks. A version lock in MariaDB breaks nothing. */
export const allows = { 'server restarted empty': ['overlap'], 'server clock stepped': ['overlap'] };

export const startBackend = async () => (await import('./several-engines.mjs')).startEngines();

export async function connect({ library, ports: [redis, mariadb] }) {
  const { dataSourceOf, ENGINES } = await import('./several-engines.mjs');
  const { RedisLockProvider } = await load(library, 'providers/redis/index.js');
  const { TypeOrmVersionLockProvider } = await load(library, 'providers/typeorm/index.js');
  const { FailoverProvider } = await load(library, 'providers/failover/failover-provider.js');
  const main = new FailoverProvider({
    engines: ENGINES,
    record: 'mariadb',
    window: WINDOW,
    lease: LEASE,
    probeEvery: 200,
    probeTimeout: 200,
    // Back again as soon as can be: each switch is a chance to be wrong.
    stableFor: 200,
    minStay: 0,
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
  return { ...locks, switchTo: (engine) => main.switchTo(engine) };
}
