import * as combined from './combined.mjs';
import * as failover from './failover.mjs';
import { jobsOf } from './jobs.mjs';
import { leadershipOf } from './leadership.mjs';
import * as memcached from './memcached.mjs';
import * as memory from './memory.mjs';
import * as naive from './naive.mjs';
import { naiveDeadlock } from './naive-deadlock.mjs';
import * as naiveLimit from './naive-limit.mjs';
import { oppositeKeysOf } from './opposite-keys.mjs';
import * as redis from './redis.mjs';
import * as redlockPackage from './redlock-package.mjs';
import * as redisCluster from './redis-cluster.mjs';
import * as redisClusterNodeRedis from './redis-cluster-node-redis.mjs';
import * as redisNodeRedis from './redis-node-redis.mjs';
import * as redisSentinel from './redis-sentinel.mjs';
import * as redisSentinelNodeRedis from './redis-sentinel-node-redis.mjs';
import * as redlock from './redlock.mjs';
import { nestedKeysOf, severalKeysOf } from './several-keys.mjs';
import { switchoversOf } from './switchovers.mjs';
import { advisoryLocks, rowLocks } from './typeorm-sessions.mjs';
import { versionLocks } from './typeorm-version.mjs';
import * as zookeeper from './zookeeper.mjs';

/** A switchover takes a second, in ms. */
const LONG_LEASE = 4_000;

/**
 * The subjects of the tests by name: our providers, and the controls that must be found guilty. A subject has
 *
 * - `title`, `faults` (their names), `workers` (if not the usual number), `keys` (if not the usual ones)
 * - `control`: the rules that it must break, if it is a control
 * - `fair`: whether callers are served in their order; `processes`: each process has one place in the queue;
 *   `cohorts`: processes are served by their longest-waiting caller, and may let in more callers under one grant
 * - `settle`: for how many ms after a fault the order may be disturbed, and a newly acquired lock may still be lost by the fault
 * - `reconnect`: for how many ms after a fault clients may still be without a connection, so that the order may be disturbed
 * - `lifetime`: how long a lock lasts without a confirmation, in ms
 * - `recovery`: within how many ms after the last fault every waiter must be served, by its documentation
 * - `sessionsEndWithin`: within how many ms the server must have ended the sessions of a process that was killed, if it has sessions
 * - `cleanupWithin`: within how many ms the backend must have removed the data of dead processes, if not within `recovery`
 * - `allows`: by fault, the rules that its documentation gives up under that fault; `excuse`: why, in one sentence for the page
 * - `noticedWithin`: within how many ms a holder must notice such a loss. By default at its deadline, which V10 guards
 * - `lostAtBegin`: by fault that takes all locks at its begin, within how many ms after that a holder must notice. Such a fault excuses no lock that was
 *   asked for later, and none for longer than a lifetime
 * - `jobs`: set where each section is a run of a job for a tick: the `period` of the jobs in ms, `afterCrash`, and `outageOver`, for how many ms
 *   after a fault of the server its clients may be without it
 * - `cycles`: its clients record their waits under other locks, and the cycles for which they are refused
 * - `longSections`: the `share` and the `length` of sections that outlast a lease; `calm`: how many ms there are between two faults, at least and at most;
 *   `oneKeyForEachClient`: each client of a worker uses one of the keys
 * - `startBackend({ random })`, called by the coordinator: `{ servers, remainingLocks(), stop() }`. With `address` if workers find the
 *   servers by themselves, with `providers` if the active provider can be switched, and with `conditions` if something was drawn for
 *   the servers: text by name. With `disagreement()` if its servers have copies of the same data: what some of them have and others have not,
 *   while nothing is in flight, or `undefined`
 * - `connect({ library, worker, history, ports, address, realPorts })`, called by each worker: how its clients acquire locks. `ports` are those of its
 *   proxies to the servers, in their order; `history` takes what they record. `sessionGuard`, in ms, if a fault needs another one
 *
 * Only these two functions load servers and clients, so that a worker starts quickly.
 */
export const subjects = {
  memory,
  redis,
  'redis-cluster': redisCluster,
  'redis-sentinel': redisSentinel,
  'redis-node-redis': redisNodeRedis,
  'redis-cluster-node-redis': redisClusterNodeRedis,
  'redis-sentinel-node-redis': redisSentinelNodeRedis,
  redlock,
  'typeorm-row': rowLocks('mariadb'),
  'typeorm-row-mysql': rowLocks('mysql'),
  'typeorm-row-postgres': rowLocks('postgres'),
  'typeorm-advisory': advisoryLocks('mariadb'),
  'typeorm-advisory-mysql': advisoryLocks('mysql'),
  'typeorm-advisory-postgres': advisoryLocks('postgres'),
  'typeorm-version': versionLocks('mariadb'),
  'typeorm-version-mysql': versionLocks('mysql'),
  'typeorm-version-postgres': versionLocks('postgres'),
  'typeorm-row-switchover': switchoversOf(rowLocks('mariadb'), 'mariadb'),
  'typeorm-row-switchover-postgres': switchoversOf(rowLocks('postgres'), 'postgres'),
  'typeorm-advisory-switchover': switchoversOf(advisoryLocks('mariadb'), 'mariadb'),
  'typeorm-advisory-switchover-postgres': switchoversOf(advisoryLocks('postgres'), 'postgres'),
  'typeorm-version-switchover': switchoversOf(versionLocks('mariadb', LONG_LEASE), 'mariadb'),
  'typeorm-version-switchover-postgres': switchoversOf(versionLocks('postgres', LONG_LEASE), 'postgres'),
  zookeeper,
  memcached,
  failover,
  combined,
  'several-keys-redis': severalKeysOf(redis),
  'several-keys-version': severalKeysOf(versionLocks('mariadb')),
  'several-keys-version-postgres': severalKeysOf(versionLocks('postgres')),
  'nested-keys-redis': nestedKeysOf(redis),
  'opposite-keys-redis': oppositeKeysOf(redis),
  'leader-redis': leadershipOf(redis),
  'leader-failover': leadershipOf(failover),
  'jobs-redis': jobsOf(redis, ['server restarted empty', 'FLUSHALL']),
  'jobs-version': jobsOf(versionLocks('mariadb')),
  naive,
  'naive-limit': naiveLimit,
  'naive-deadlock': naiveDeadlock,
  'redlock-package': redlockPackage,
};
