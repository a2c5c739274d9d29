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

/** For switchovers, which take a second. In ms. */
const LONG_LEASE = 4_000;

/**
 * The test subjects by name: our providers, and the controls, which must be found guilty. A subject has
 *
 * - `title`, `faults` (their names), `workers` (if not the usual number), `keys` (if not the usual keys)
 * - `control`: the rules that it must break, if it is a control
 * - `fair`: whether callers are served in order; `processes`: each process has one place in the queue; `cohorts`:
 *   processes are served by their longest-waiting caller, and may admit more callers under one grant
 * - `settle`: for how many ms after a fault the order may be disturbed, and a newly acquired lock may still be lost to
 *   the fault
 * - `reconnect`: for how many ms after a fault clients may still be disconnected, which may disturb the order
 * - `lifetime`: how long a lock lasts without a confirmation, in ms
 * - `recovery`: within how many ms after the last fault every waiter must be served, according to the documentation
 * - `sessionsEndWithin`: within how many ms the server must have ended the sessions of a killed process, if it has
 *   sessions
 * - `cleanupWithin`: within how many ms the backend must have removed the data of dead processes, if not within
 *   `recovery`
 * - `allows`: by fault, the rules that the documentation waives under that fault; `excuse`: why, in one sentence for
 *   the page
 * - `noticedWithin`: within how many ms a holder must notice such a loss. By default at its deadline, which V10
 *   enforces
 * - `lostAtBegin`: for each fault that takes all locks when it begins, within how many ms a holder must then notice.
 *   Such a fault excuses no lock that was requested later, and excuses none for longer than a lifetime
 * - `jobs`: set if each section is a job's run for a tick: the `period` of the jobs in ms, `afterCrash`, and
 *   `outageOver`: for how many ms after a server fault clients may be disconnected
 * - `cycles`: its clients record their waits under other locks, and the cycles for which they are refused
 * - `longSections`: the `share` and `length` of sections that outlast a lease; `calm`: the minimum and maximum pause
 *   between two faults, in ms; `oneKeyForEachClient`: each client of a worker uses its own key
 * - `startBackend({ random })`, called by the coordinator, returns `{ servers, remainingLocks(), stop() }`. It adds
 *   `address` if workers find the servers themselves, `providers` if the active provider can be switched, and
 *   `conditions` if something was chosen at random for the servers: text by name. It adds `disagreement()` if its
 *   servers have copies of the same data: it returns what some of them have and others lack while nothing is in flight,
 *   or `undefined`
 * - `connect({ library, worker, history, ports, address, realPorts })`, called by each worker, returns how its clients
 *   acquire locks. `ports` are the worker's proxies to the servers, in the order of the servers; `history` takes what
 *   the clients record. `sessionGuard`, in ms, is set if a fault needs a different one
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
