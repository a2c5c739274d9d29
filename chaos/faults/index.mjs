import * as failover from './failover.mjs';
import * as load from './load.mjs';
import * as memcached from './memcached.mjs';
import * as network from './network.mjs';
import * as processes from './processes.mjs';
import * as redis from './redis.mjs';
import * as servers from './servers.mjs';
import * as sql from './sql.mjs';
import * as switchovers from './switchovers.mjs';

/**
 * The faults, by name. A fault has
 *
 * - `of`: `worker` if it affects one worker, `server` if all workers may notice it
 * - `begin`, and `end` if it has a duration. Both receive `{ subject, fleet, backend, resource, worker, server, random,
 *   duration }`: a randomly chosen worker and server, and the duration in ms
 * - `prepare`: runs before the beginning of the fault is recorded. It receives the same context, and may add to it
 * - `settle`: for how many ms after its end it may still do harm. No other fault begins during that time
 * - `possible`: whether it applies to this backend
 */
export const faults = new Map(
  [
    ...[network, processes].map((group) => ({ group, of: 'worker' })),
    ...[failover, load, memcached, redis, servers, sql, switchovers].map((group) => ({ group, of: 'server' })),
  ].flatMap(({ group, of }) => Object.values(group).map((fault) => [fault.name, { ...fault, of }])),
);
