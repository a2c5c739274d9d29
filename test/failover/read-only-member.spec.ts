import { Redis } from 'ioredis';
import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startMySqlOrMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { until } from '../until.js';
import { withIntervals } from './fleet-rig.js';

/** A server that takes no writes yet. */
interface ReadOnly {
  readonly provider: LockProvider;
  /** From now on it takes writes. */
  promote(): Promise<unknown>;
  stop(): Promise<unknown>;
}

const locked = (locks: LockManager, provider: string): Promise<unknown> =>
  locks
    .withLock('k', () => 'done', { provider, wait: 0 })
    .then(
      (value) => value,
      (error: unknown) => error,
    );

const KINDS: Readonly<Record<string, () => Promise<ReadOnly>>> = {
  'a replica of Redis': async () => {
    const master = await startRedisServer();
    const server = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(master.port)] });
    const admin = new Redis(server.url);
    return {
      provider: new RedisLockProvider({ url: server.url, commandTimeout: '10s' }),
      promote: () => admin.replicaof('NO', 'ONE'),
      stop: async () => {
        admin.disconnect();
        await Promise.all([server.stop(), master.stop()]);
      },
    };
  },
  'a read-only MySQL or MariaDB': async () => {
    const server = await startMySqlOrMariaDb();
    const admin = await createConnection(server.url.replace('mariadb:', 'mysql:'));
    await admin.query('SET GLOBAL read_only = ON');
    return {
      provider: new SqlVersionLockProvider({ url: server.url, synchronize: true, commandTimeout: '10s' }),
      promote: () => admin.query('SET GLOBAL read_only = OFF'),
      stop: async () => {
        await admin.end();
        await server.stop();
      },
    };
  },
  'a read-only Postgres': async () => {
    const server = await startPostgres();
    const admin = new pg.Client(server.url);
    await admin.connect();
    await admin.query('ALTER DATABASE postgres SET default_transaction_read_only = on');
    return {
      provider: new SqlVersionLockProvider({ url: server.url, synchronize: true, commandTimeout: '10s' }),
      promote: async () => {
        await admin.query('SET default_transaction_read_only = off');
        await admin.query('ALTER DATABASE postgres RESET default_transaction_read_only');
      },
      stop: async () => {
        await admin.end();
        await server.stop();
      },
    };
  },
};

describe('a member that takes no writes at the start does not fail the boot, is in the log, and is used when it does:', () => {
  const ends: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  }, 60_000);

  it.each(Object.entries(KINDS))(
    '%s',
    async (_, start) => {
      const [closed, record] = await Promise.all([start(), startPostgres()]);
      ends.push(
        () => record.stop(),
        () => closed.stop(),
      );
      const log: string[] = [];
      const say = (message: string) => log.push(message);
      const settings = { shutdownGrace: 0, logger: { debug: () => undefined, warn: say, error: say } };
      // A member counts as silent after half of the interval, and one of them has to answer at the start, however busy the machine is.
      const locks = new LockManager({
        providers: {
          failover: withIntervals(new FailoverLockProvider({ providers: ['closed', 'open'], casStore: 'open' }), {
            probeInterval: 10_000,
          }),
          closed: closed.provider,
          open: new SqlVersionLockProvider({ url: record.url, synchronize: true, commandTimeout: '10s' }),
        },
        default: 'failover',
        ...settings,
      });
      // It needs all of its members.
      const providers = {
        both: new CombinedLockProvider({ providers: ['closed', 'memory'] }),
        closed: closed.provider,
        memory: new MemoryLockProvider(),
      };
      const combined = [true, false].map(
        (failFast) => new LockManager({ providers, default: 'both', failFast, ...settings }),
      );
      for (const each of [locks, ...combined]) ends.push(() => each.stop());
      const [strict, patient] = combined as [LockManager, LockManager];
      await expect(strict.start()).rejects.toThrow(/"both" needs all of its providers, but "closed" did not respond/);
      await patient.start();
      await locks.start();
      expect(log).toContainEqual(
        expect.stringMatching(
          /provider "closed" is not responding: .*(replica|read-only).*(Give|Configure) the provider/,
        ),
      );
      await until(async () => (await locked(locks, 'failover')) === 'done', 'the other member is used', 60_000);
      expect(await locked(patient, 'both')).toBeInstanceOf(Error);
      await closed.promote();
      await until(async () => (await locked(patient, 'both')) === 'done', 'it takes writes', 60_000);
      await until(async () => (await locked(locks, 'closed')) === 'done', 'it takes writes', 60_000);
    },
    180_000,
  );
});
