import * as failOver from './fail-over.mjs';
import * as memcached from './memcached.mjs';
import * as network from './network.mjs';
import * as processes from './processes.mjs';
import * as redis from './redis.mjs';
import * as servers from './servers.mjs';
import * as sql from './sql.mjs';

/**
 * The faults by name. Each has `of`, whose it is (`worker`, or `server` where all may notice it), `begin`, and `end` where it lasts; both are given `{ fleet, backend, victim, server, random,
 * duration }`: a worker and a server drawn for it, and how long it is to last in ms. `settle`: for how many ms after its end it may do harm still, and none follows.
 */
export const nemeses = new Map(
  [
    ...[network, processes].map((group) => ({ group, of: 'worker' })),
    ...[failOver, memcached, redis, servers, sql].map((group) => ({ group, of: 'server' })),
  ].flatMap(({ group, of }) => Object.values(group).map((nemesis) => [nemesis.name, { ...nemesis, of }])),
);
