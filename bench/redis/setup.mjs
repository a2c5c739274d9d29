// The setup of the Redis groups: a server on core 0, and each candidate in its own process on core 1.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { builds } from '../builds.mjs';
import { CandidateProcess, startEach } from '../candidate-process.mjs';
import { pinned } from '../pinned.mjs';
import { about, versionOf } from '../results.mjs';
import { NODE_REDIS, OURS, peers, RAW, SCRIPTS, SENT } from './candidates.mjs';

export { NODE_REDIS, OURS, RAW, SCRIPTS, SENT };

const CANDIDATES = new URL('candidates.mjs', import.meta.url);
export const server = pinned(await startRedisServer());
export const admin = new Redis(server.port);
/** The names of the other libraries. */
export const peerNames = Object.keys(await peers());
/** The processes of all candidates, by name. */
export const by = await startEach(CANDIDATES, [RAW, SCRIPTS, ...builds, SENT, NODE_REDIS, ...peerNames], server.port);

const PACKAGES = { 'redlock 4': 'redlock4', 'redlock 5 beta': 'redlock' };
about({
  versions: {
    redis: /redis_version:(\S+)/.exec(await admin.info('server'))[1],
    ioredis: versionOf('ioredis'),
    'node-redis': versionOf('redis'),
    ...Object.fromEntries(peerNames.map((name) => [name, versionOf(PACKAGES[name] ?? name, 'peers')])),
    ...(peerNames.length > 0 && { 'node-redis (of simple-redis-mutex)': versionOf('redis', 'peers') }),
    ...(peerNames.length > 0 && { 'node-redis (of murlock)': versionOf('murlock/node_modules/redis', 'peers') }),
  },
  settings:
    'redis-server without persistence; leases of 10 s; raw ioredis is SET NX PX and compare-and-delete, and polls every 10 ms ' +
    'while it waits; every library has its defaults (murlock, which has none, has the settings of its README: 3 attempts, 1 s)',
});

/** Starts another process of this candidate. */
export function start(name) {
  return CandidateProcess.start(CANDIDATES, name, server.port);
}

/** How many commands the clients send while `task` runs. Commands inside scripts don't count. */
export async function commandsDuring(task) {
  const counter = fork(fileURLToPath(new URL('command-counter.mjs', import.meta.url)), [String(server.port)]);
  await once(counter, 'message');
  await task();
  const counted = once(counter, 'message');
  counter.send('end');
  return (await counted)[0];
}

export async function stop() {
  for (const candidate of Object.values(by)) await candidate.stop();
  admin.disconnect();
  await server.stop();
}
