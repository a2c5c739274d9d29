import * as failOver from './fail-over.mjs';
import * as memcached from './memcached.mjs';
import * as network from './network.mjs';
import * as processes from './processes.mjs';
import * as redis from './redis.mjs';
import * as servers from './servers.mjs';
import * as sql from './sql.mjs';

/**
 * The faults by name. Each has `begin`, and `end` where it lasts; both are given `{ fleet, backend, victim, server, random,
 * duration }`: a worker and a server drawn for it, and how long it is to last in ms.
 */
export const nemeses = new Map(
  [failOver, memcached, network, processes, redis, servers, sql]
    .flatMap((group) => Object.values(group))
    .map((nemesis) => [nemesis.name, nemesis]),
);
