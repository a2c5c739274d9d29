import * as combined from './combined.mjs';
import * as failover from './failover.mjs';
import * as memory from './memory.mjs';
import * as naive from './naive.mjs';
import * as redis from './redis.mjs';
import * as redlockPackage from './redlock-package.mjs';
import * as redisSentinel from './redis-sentinel.mjs';
import * as redlock from './redlock.mjs';
import { advisoryLocks, rowLocks } from './typeorm-sessions.mjs';
import { versionLocks } from './typeorm-version.mjs';
import * as zookeeper from './zookeeper.mjs';

/**
 * What is put to the proof, by name: our providers, and the controls that must be found guilty. A subject has
 *
 * - `title`, `nemeses` (names of faults), `fair`, `control`, `workers` (if not the usual number)
 * - `lifetime`: how long a lock lasts without a confirmation, in ms
 * - `recovery`: within how many ms after the last fault whoever waits must be served, by its documentation
 * - `allows`: which rules its documentation gives up, by the fault under which it does
 * - `toldWithin`: how soon who was deprived of a lock that way must know, in ms; by default at its deadline, which V10 guards
 * - `startBackend()`: `{ servers, leftovers(), stop() }`, in the coordinator; with `address` where workers find the servers by themselves,
 *   and `engines` where one of several can be switched to
 * - `connect({ library, ports, address })`: the locks as the clients of a worker use them
 */
export const subjects = {
  memory,
  redis,
  'redis-sentinel': redisSentinel,
  redlock,
  'typeorm-row': rowLocks('mariadb'),
  'typeorm-row-postgres': rowLocks('postgres'),
  'typeorm-advisory': advisoryLocks('mariadb'),
  'typeorm-advisory-postgres': advisoryLocks('postgres'),
  'typeorm-version': versionLocks('mariadb'),
  'typeorm-version-postgres': versionLocks('postgres'),
  zookeeper,
  failover,
  combined,
  naive,
  'redlock-package': redlockPackage,
};
