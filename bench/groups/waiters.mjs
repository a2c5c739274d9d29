// Thousands of waiters in one process on one Redis key that another process holds: what they cost while they wait, and
// how soon the next process has the lock when their process is killed. The server runs on core 0, the clients on core
// 1. Builds take turns, each with a new process for its waiters.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { builds, OURS } from '../builds.mjs';
import { interleave, lasting, mapped } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { candidate } from '../redis/candidates.mjs';
import { serverTime } from '../redis/server-time.mjs';
import { about, report, versionOf } from '../results.mjs';

const KEY = 'crowded';
const WAITERS = 10_000;

const server = pinned(await startRedisServer());
const admin = new Redis(server.port);
about({
  versions: {
    redis: /redis_version:(\S+)/.exec(await admin.info('server'))[1],
    ioredis: versionOf('ioredis'),
  },
  settings: 'redis-server without persistence; 100 callers come in each turn of the event loop',
});

const waited = await inTurn((build) => waiting(build, WAITERS));
for (const [part, words, unit] of [
  ['enqueued', 'until all wait', 'ms'],
  ['cpu', 'CPU time of the server', 'ms a second'],
  ['heap', 'heap', 'bytes a waiter'],
  ['stall', 'longest stall of the event loop', 'ms'],
]) {
  const what = `${WAITERS.toLocaleString('en')} waiters in one process on one key: ${words}`;
  report({ what, unit, better: 'less', ours: OURS, rounds: mapped(waited, (result) => result[part]) });
}

const results = await inTurn(killed);
const what = `A process with ${WAITERS.toLocaleString('en')} waiters on one key is killed`;
for (const [part, words] of [
  ['took', 'until the next process has the lock'],
  ['cpu', 'CPU time of the server until then'],
]) {
  report({
    what: `${what}: ${words}`,
    unit: 'ms',
    better: 'less',
    ours: OURS,
    rounds: mapped(results, (result) => result[part]),
  });
}

admin.disconnect();
await server.stop();

function inTurn(measure) {
  return interleave(Object.fromEntries(builds.map((build) => [build, () => measure(build)])), { rounds: 3, warmUp: 0 });
}

async function waiting(build, waiters) {
  const { release, process, enqueued } = await crowd(build, waiters);
  const seconds = lasting(10_000) / 1_000;
  const before = await serverTime(admin);
  await sleep(seconds * 1_000);
  const cpu = ((await serverTime(admin)) - before) / 1_000 / seconds;
  process.send('end');
  const [{ stall, heap }] = await once(process, 'message');
  await kill(process);
  await release();
  return { enqueued, cpu, stall, heap };
}

async function killed(build) {
  const { release, process } = await crowd(build, WAITERS);
  const next = await candidate(build, server.port);
  const acquired = next.acquire(KEY);
  // By now, its request has arrived behind the others.
  await sleep(100);
  await kill(process);
  const [before, startedAt] = [await serverTime(admin), performance.now()];
  await release();
  const releaseNext = await acquired;
  const took = performance.now() - startedAt;
  const cpu = ((await serverTime(admin)) - before) / 1_000;
  await releaseNext();
  await next.stop();
  return { took, cpu };
}

/** Starts a process with `waiters` waiters for a lock that is held here. `release` ends the hold. */
async function crowd(build, waiters) {
  await admin.flushall();
  const holder = await candidate(build, server.port);
  const release = await holder.acquire(KEY, { lease: '1h' });
  const program = fileURLToPath(new URL('../redis/crowd.mjs', import.meta.url));
  const process = fork(program, [build, server.url, KEY, String(waiters)], { execArgv: ['--expose-gc'] });
  const [{ enqueued }] = await once(process, 'message');
  return { process, enqueued, release: () => release().then(() => holder.stop()) };
}

async function kill(process) {
  const exit = once(process, 'exit');
  process.kill('SIGKILL');
  await exit;
}
