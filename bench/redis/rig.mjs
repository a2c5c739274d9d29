// The base of the Redis rows: a server on core 0, and all candidates with a client each. The rows run on core 1.
import { fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { about, versionOf } from '../results.mjs';
import { candidate, OURS, peers, RAW } from './candidates.mjs';

export { OURS, RAW };

export const server = await startRedisServer();
spawnSync('taskset', ['-p', '-c', '0', String(server.pid)]);
export const admin = new Redis(server.port);
/** The names of the other libraries. */
export const rivals = Object.keys(await peers());
/** All candidates by name. */
export const by = {};
for (const name of [RAW, OURS, ...rivals]) by[name] = await candidate(name, server.port);

const PACKAGES = { 'redlock 4': 'redlock4', 'redlock 5 beta': 'redlock' };
about({
  versions: {
    redis: /redis_version:(\S+)/.exec(await admin.info('server'))[1],
    ioredis: versionOf('ioredis'),
    ...Object.fromEntries(rivals.map((name) => [name, versionOf(PACKAGES[name] ?? name, 'peers')])),
    ...(rivals.length > 0 && { 'node-redis (of simple-redis-mutex)': versionOf('redis', 'peers') }),
    ...(rivals.length > 0 && { 'node-redis (of murlock)': versionOf('murlock/node_modules/redis', 'peers') }),
  },
  settings:
    'redis-server without persistence; leases of 10 s; raw ioredis is SET NX PX and compare-and-delete, and polls each 10 ms ' +
    'where it has to wait; every library with its defaults (murlock, which has none, with the settings of its README: 3 attempts, 1 s)',
});

/** For each of the names a measurement of its candidate. */
export function each(names, measure) {
  return Object.fromEntries(names.map((name) => [name, () => measure(by[name].take)]));
}

/** How many commands the clients send while `task` runs; those inside scripts do not count. */
export async function commandsDuring(task) {
  const watcher = fork(fileURLToPath(new URL('watcher.mjs', import.meta.url)), [String(server.port)]);
  await once(watcher, 'message');
  await task();
  const counted = once(watcher, 'message');
  watcher.send('end');
  return (await counted)[0];
}

export async function stop() {
  for (const candidate of Object.values(by)) await candidate.stop();
  admin.disconnect();
  await server.stop();
}
