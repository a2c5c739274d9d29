import * as combined from './combined.mjs';
import * as failover from './failover.mjs';
import * as memcached from './memcached.mjs';
import * as memory from './memory.mjs';
import * as naive from './naive.mjs';
import * as redis from './redis.mjs';
import * as redlockPackage from './redlock-package.mjs';
import * as redisCluster from './redis-cluster.mjs';
import * as redisSentinel from './redis-sentinel.mjs';
import * as redlock from './redlock.mjs';
import { advisoryLocks, rowLocks } from './typeorm-sessions.mjs';
import { versionLocks } from './typeorm-version.mjs';
import * as zookeeper from './zookeeper.mjs';

/**
 * What is put to the proof, by name: our providers, and the controls that must be found guilty. A subject has
 *
 * - `title`, `nemeses` (names of faults), `workers` (if not the usual number)
 * - `control`: the rules that it must be found to break, if it is one
 * - `fair`: whether callers are served in their order; `processes`: each process by one caller at a time
 * - `settle`: how many ms after a fault that order stands again, and a lock that is asked for is not lost by it any more
 * - `lifetime`: how long a lock lasts without a confirmation, in ms
 * - `recovery`: within how many ms after the last fault whoever waits must be served, by its documentation
 * - `forgets`: within how many ms what the dead have left in the backend must be gone, if not within `recovery`
 * - `allows`: which rules its documentation gives up, by the fault under which it does
 * - `toldWithin`: how soon who was deprived of a lock that way must know, in ms; by default at its deadline, which V10 guards
 * - `startBackend()`: `{ servers, leftovers(), stop() }`, in the coordinator; with `address` where workers find the servers by themselves,
 *   and `engines` where one of several can be switched to
 * - `connect({ library, ports, address, realPorts })`: the locks as the clients of a worker use them; `ports` are those of its wires to the
 *   servers, in their order
 *
 * Only these two functions load servers and clients, so that a worker starts quickly.
 */
export const subjects = {
  memory,
  redis,
  'redis-cluster': redisCluster,
  'redis-sentinel': redisSentinel,
  redlock,
  'typeorm-row': rowLocks('mariadb'),
  'typeorm-row-postgres': rowLocks('postgres'),
  'typeorm-advisory': advisoryLocks('mariadb'),
  'typeorm-advisory-postgres': advisoryLocks('postgres'),
  'typeorm-version': versionLocks('mariadb'),
  'typeorm-version-postgres': versionLocks('postgres'),
  zookeeper,
  memcached,
  failover,
  combined,
  naive,
  'redlock-package': redlockPackage,
};
