import { CombinedLockProvider, FailoverLockProvider } from '../../lib/composite.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { capabilitiesOf } from '../../lib/testing/capabilities.js';
import { FakeClock } from '../../lib/testing/index.js';

it('the capabilities of providers are known without a socket, and without a timer of ours', async () => {
  const url = 'postgres://nobody@127.0.0.1:1/none';
  const nodes = [1, 2, 3].map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const clock = new FakeClock();
  const before = process.getActiveResourcesInfo();
  const capabilities = capabilitiesOf({
    providers: {
      redis: new RedisLockProvider({ url: 'redis://127.0.0.1:1' }),
      cluster: new RedisLockProvider({ cluster: [{ host: '127.0.0.1', port: 1 }] }),
      redlock: new RedlockLockProvider({ nodes, maxLease: '1m' }),
      row: new SqlRowLockProvider({ url }),
      version: new SqlVersionLockProvider({ url }),
      advisory: new SqlAdvisoryLockProvider({ url }),
      zookeeper: new ZooKeeperLockProvider({ connectString: '127.0.0.1:1' }),
      memcached: new MemcachedLockProvider({ server: '127.0.0.1:1' }),
      failover: new FailoverLockProvider({ providers: ['redis', 'zookeeper'], casStore: 'version' }),
      combined: new CombinedLockProvider({ providers: ['redis', 'row'] }),
    },
    default: 'redis',
    clock,
  });
  // A connection would be opened in the ticks after the backends are made.
  await new Promise((resolve) => setImmediate(resolve));
  // Jest's own timers come and go.
  expect(process.getActiveResourcesInfo().filter((each) => each !== 'Timeout' && !before.includes(each))).toEqual([]);
  expect(clock.pendingTimers).toBe(0);
  const minHold = [...capabilities].filter(([, can]) => can.minHold).map(([name]) => name);
  expect(minHold).toEqual(['redis', 'cluster', 'redlock', 'version', 'memcached']);
});
