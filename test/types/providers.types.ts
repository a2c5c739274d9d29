// Compiled by `npm run typecheck`, never executed.
import { expectTypeOf } from 'expect-type';
import type { Cluster, Redis } from 'ioredis';
import type { Cluster as Cluster5, Redis as Redis5 } from 'ioredis5';
import type { ConnectionOptions } from 'mysql2';
import type { ClientConfig, PoolClient } from 'pg';
import { createClient, createClientPool, createCluster, createSentinel } from 'redis';
import * as nodeRedis5 from 'redis5';
import type { EntityManager } from 'typeorm';
import { DistributedLock, type Lock, type LockAdmin } from '../../lib/index.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import {
  SqlAdvisoryLockProvider,
  sqlClientOf,
  SqlRowLockProvider,
  SqlVersionLockProvider,
} from '../../lib/providers/sql/index.js';
import { RetryOnConflict, saveFenced } from '../../lib/providers/typeorm/index.js';
import {
  DistributedLockTestingModule,
  type DistributedLockTestingModuleOptions,
  TestLocks,
  type TestLocksOptions,
} from '../../lib/testing/index.js';

declare const redis: Redis;
declare const redis5: Redis5;
declare const cluster: Cluster;
declare const cluster5: Cluster5;

new RedisLockProvider({ client: redis });
new RedisLockProvider({ client: redis5 });
new RedisLockProvider({ client: cluster });
new RedisLockProvider({ client: cluster5 });

const rootNodes = [{ url: 'redis://localhost' }];
const sentinel = { name: 'locks', sentinelRootNodes: [{ host: 'localhost', port: 26379 }] };
new RedisLockProvider({ client: createClient() });
new RedisLockProvider({ client: createClient({ RESP: 2 }) });
new RedisLockProvider({ client: createCluster({ rootNodes }) });
new RedisLockProvider({ client: createSentinel(sentinel) });
new RedisLockProvider({ client: nodeRedis5.createClient() });
new RedisLockProvider({ client: nodeRedis5.createClient({ RESP: 3 }) });
new RedisLockProvider({ client: nodeRedis5.createCluster({ rootNodes }) });
// @ts-expect-error: version 5 does not expose its options
new RedisLockProvider({ client: nodeRedis5.createSentinel(sentinel) });
// @ts-expect-error: a pool cannot be duplicated
new RedisLockProvider({ client: createClientPool() });
// @ts-expect-error: not a client
new RedisLockProvider({ client: 'redis://localhost' });

// As in an application without `exactOptionalPropertyTypes`, where an optional property may be undefined.
const url = process.env['REDIS_URL'];
// @ts-expect-error: the variable may not be set
new RedisLockProvider({ url });
// @ts-expect-error: the client may be undefined
new RedisLockProvider({ client: url === undefined ? undefined : redis });
// @ts-expect-error: client, url, cluster, and options are missing
new RedisLockProvider({ waitReplicas: 1 });
// @ts-expect-error: two of them
new RedisLockProvider({ url: 'redis://localhost', client: redis });
// @ts-expect-error: the variable may not be set
new RedlockLockProvider({ nodes: [{ url }, { url: 'redis://b' }, { url: 'redis://c' }], maxLease: '1m' });
new RedisLockProvider({ url: 'redis://localhost', client: undefined, commandTimeout: '1s' });
new RedisLockProvider({ cluster: ['redis://a'], options: { redisOptions: {} } });
new RedisLockProvider(url === undefined ? { client: redis } : { url });

new RedlockLockProvider({
  nodes: [{ client: redis }, { client: createClient() }, { url: 'redis://c' }],
  maxLease: '1m',
});

declare const postgres: ClientConfig;

declare const mysql: ConnectionOptions;

declare const lock: Lock;

new SqlRowLockProvider({ url: 'postgres://localhost/app', nestedConnections: 2 });

new SqlVersionLockProvider({ postgres });

new SqlAdvisoryLockProvider({ mysql, fencing: true });

new SqlVersionLockProvider({ postgres: { host: 'db', statement_timeout: 5 } });

// @ts-expect-error: no server
new SqlRowLockProvider({ table: 'locks' });

// @ts-expect-error: two servers
new SqlRowLockProvider({ url: 'postgres://localhost/app', mysql });

// @ts-expect-error: an option of the row lock
new SqlVersionLockProvider({ url: 'postgres://localhost/app', nestedConnections: 2 });

// @ts-expect-error: not a number
new SqlVersionLockProvider({ url: 'postgres://localhost/app', maxConnections: true });

const client: PoolClient = sqlClientOf<PoolClient>(lock);

void client;

/* eslint-disable @typescript-eslint/no-unused-vars -- methods of all shapes, only for their types. */

declare const manager: EntityManager;

declare const admin: LockAdmin;

class Account {
  id!: string;
  fence!: bigint | null;
  version?: number;
  owner!: { name: string };
  changedAt!: Date;
  isOpen!: boolean;
}

/** Columns that can guard a row. */
async function guards(account: Account) {
  const saved: Account = await saveFenced(manager, account, lock, { column: 'fence' });
  await saveFenced(manager, account, lock, { column: 'version' });
  // @ts-expect-error: not a property of the entity
  await saveFenced(manager, account, lock, { column: 'fense' });
  // @ts-expect-error: a token is not an object
  await saveFenced(manager, account, lock, { column: 'owner' });
  // @ts-expect-error: nor a date
  await saveFenced(manager, account, lock, { column: 'changedAt' });
  // @ts-expect-error: nor a boolean
  await saveFenced(manager, account, lock, { column: 'isOpen' });
  // @ts-expect-error: the column is missing
  await saveFenced(manager, account, lock, {});

  const unlocked: Account = await saveFenced(manager, account, { column: 'version' });
  // @ts-expect-error: not a property of the entity
  await saveFenced(manager, account, { column: 'versoin' });
  // @ts-expect-error: a version is not a date
  await saveFenced(manager, account, { column: 'changedAt' });
  // @ts-expect-error: the column is missing
  await saveFenced(manager, account, lock);
}

/** The operator's way to delete unused rows. */
async function purges() {
  const deleted: number = await admin.purge({ unusedFor: '7d' }, 'sql');
  await admin.purge({ unusedFor: 1_000 });
  // @ts-expect-error: the age is missing
  await admin.purge();
}

/** Methods that can be retried. */
abstract class Retried {
  @RetryOnConflict()
  async async(id: string) {}
  @RetryOnConflict({ attempts: 5 })
  promise(): Promise<number> {
    return Promise.resolve(1);
  }
  @DistributedLock('account:#{id}')
  @RetryOnConflict()
  protected async locked(id: string) {}
  @RetryOnConflict()
  static async static() {}

  // @ts-expect-error: synchronous
  @RetryOnConflict()
  sync(): number {
    return 1;
  }
  // @ts-expect-error: yielded values cannot be undone
  @RetryOnConflict()
  async *generator() {
    yield 1;
  }
  // @ts-expect-error: no such option
  @RetryOnConflict({ tries: 3 })
  async option() {}
}

// The testing module accepts the module's options and those of TestLocks.
DistributedLockTestingModule.forRoot({ namespace: 'test', detectDeadlocks: true });

DistributedLockTestingModule.forRoot({ detectDeadlocks: undefined });

// @ts-expect-error: a string is not a boolean
DistributedLockTestingModule.forRoot({ detectDeadlocks: 'true' });

// @ts-expect-error: no such option
DistributedLockTestingModule.forRoot({ detectDeadlock: true });

new TestLocks();

new TestLocks({ detectDeadlocks: false });

// @ts-expect-error: a module option
new TestLocks({ namespace: 'test' });

expectTypeOf<DistributedLockTestingModuleOptions>().toExtend<TestLocksOptions>();

expectTypeOf<TestLocksOptions['detectDeadlocks']>().toEqualTypeOf<boolean | undefined>();
