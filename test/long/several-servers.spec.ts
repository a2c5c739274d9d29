import { Redis } from 'ioredis';
import type { LockCapabilities, LockProvider } from '../../lib/api/lock-provider.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import type { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { type ProviderHarness, describeLockProvider } from '../../lib/provider-kit/index.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { SqlBackend } from '../typeorm/sql-backend.js';
import { leaseRows, revokeLease, versionProvider } from '../typeorm/version-backend.js';
import { HostedComposite } from '../contract/hosted-composite.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { withIntervals } from '../failover/fleet-rig.js';

let redis: RedisServer;
let admin: Redis;
let mariadb: SqlBackend;
// The proxies to Redis.
const wires = new Map<LockProvider, TcpProxy>();

beforeAll(async () => {
  [redis, mariadb] = await Promise.all([startRedisServer(), SqlBackend.start('mariadb')]);
  admin = new Redis(redis.url);
}, 60_000);
afterAll(async () => {
  await Promise.all([...wires.values()].map((wire) => wire.close()));
  admin.disconnect();
  await Promise.all([redis.stop(), mariadb.stop()]);
});

interface Members extends Record<string, LockProvider> {
  redis: RedisLockProvider;
  mariadb: TypeOrmVersionLockProvider;
}

/** Returns the harness of a composite of Redis and MariaDB, each behind its own proxies. */
function severalServersHarness(
  terms: Pick<ProviderHarness, 'capabilities' | 'lease' | 'bounds' | 'records'>,
  compose: () => LockProvider,
): ProviderHarness {
  const onWires = (cut: boolean) => async (provider: LockProvider) => {
    const { hosted } = provider as HostedComposite<Members>;
    const wire = wires.get(hosted.redis);
    const other = mariadb.wireOf(hosted.mariadb);
    if (cut) wire?.refuse();
    else wire?.admit();
    if (cut) other?.freeze();
    else other?.thaw();
  };
  const isProbe = (name: string) => name.endsWith(':probe');
  return {
    ...terms,
    create: async () => {
      const wire = await startTcpProxy(redis.port);
      const hosted: Members = {
        redis: new RedisLockProvider({ url: `redis://127.0.0.1:${wire.port}`, commandTimeout: '10s' }),
        mariadb: await versionProvider(mariadb),
      };
      wires.set(hosted.redis, wire);
      return new HostedComposite(compose(), hosted);
    },
    faults: {
      revoke: (namespace, key) =>
        Promise.all([admin.del(new KeyLayout(namespace).lockOf(key)), revokeLease(mariadb.admin, namespace, key)]),
      cutOff: onWires(true),
      restore: onWires(false),
    },
    remainingLocks: async (namespace) => {
      const keys = await admin.keys(`${namespace}:*`);
      const rows = await leaseRows(mariadb.admin, namespace);
      return (
        // Instance names are kept for a day.
        keys.filter((key) => !/:\{\d+\}(seen|instance:[0-9a-f]{12})?$/.test(key) && !isProbe(key)).length +
        rows.filter(({ holder, name }) => holder !== null && !isProbe(name)).length
      );
    },
  };
}

const common: LockCapabilities = {
  shared: false,
  fair: false,
  fencing: false,
  lease: 'per-lock',
  minHold: true,
  forceRelease: true,
};
const members = ['redis', 'mariadb'];

describeLockProvider(
  'combined on Redis and MariaDB',
  severalServersHarness({ capabilities: common, lease: 2_000 }, () => new CombinedLockProvider({ providers: members })),
);

// A new process waits for one window before it grants, so each case takes at least that long.
const WINDOW = 5_000;

describeLockProvider(
  'failover from Redis to MariaDB',
  severalServersHarness(
    {
      capabilities: {
        ...common,
        ...{ fencing: true, wideTokens: true, lease: 'session', minHold: false },
      },
      records: true,
      lease: WINDOW,
      // A member keeps a dead process's lock for two windows.
      bounds: { expiry: WINDOW, takeOver: WINDOW + 1_500 },
    },
    // A case that cuts off both members expects recovery, not a switch. A provider that fails for less than half an
    // hour isn't considered down.
    () =>
      withIntervals(new FailoverLockProvider({ providers: members, casStore: 'mariadb', window: WINDOW }), {
        probeInterval: 3_600_000,
      }),
  ),
);
