import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { capabilitiesOf } from '../../lib/testing/capabilities.js';

const PAGE = join(import.meta.dirname, '../../docs/choosing-a-provider.md');

const postgres = { url: 'postgres://localhost/app' };
const mysql = { url: 'mysql://localhost/app' };
const nodes = ['a', 'b', 'c'].map((host) => ({ url: `redis://${host}:6379` }));

/** The rows of the table, each with the provider that it describes. */
const PROVIDERS: Readonly<Record<string, LockProvider>> = {
  memory: new MemoryLockProvider(),
  Redis: new RedisLockProvider({ url: 'redis://localhost:6379' }),
  Redlock: new RedlockLockProvider({ nodes }),
  'SQL version lock': new SqlVersionLockProvider(postgres),
  'SQL row lock, Postgres': new SqlRowLockProvider(postgres),
  'SQL row lock, MySQL': new SqlRowLockProvider(mysql),
  'SQL advisory lock, Postgres': new SqlAdvisoryLockProvider(postgres),
  'SQL advisory lock, MySQL': new SqlAdvisoryLockProvider(mysql),
  ZooKeeper: new ZooKeeperLockProvider({ connectString: 'localhost:2181' }),
  memcached: new MemcachedLockProvider({ server: 'localhost:11211' }),
};

function rowOf(name: string, provider: LockProvider): string {
  const can = capabilitiesOf({ providers: { provider } }).get('provider')!;
  const cells = [can.lease === 'per-lock', can.minHold, can.shared, can.limits, can.fencing, can.fair];
  const answers = [...cells, can.forceRelease, can.list, can.records, can.ordered].map((each) => (each ? 'yes' : 'no'));
  return `| ${[name, ...answers].join(' | ')} |`;
}

it('the table of the providers says what each can do', () => {
  const [, table = ''] = /^\|---.*\|\n((?:\|.*\n)*)/m.exec(readFileSync(PAGE, 'utf8')) ?? [];
  expect(table.trim().split('\n')).toEqual(Object.entries(PROVIDERS).map(([name, provider]) => rowOf(name, provider)));
});
