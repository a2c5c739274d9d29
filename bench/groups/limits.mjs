// Limited locks on Redis, beside the Semaphore of redis-semaphore with its defaults, in the same run. Both take turns, so that other load
// of the machine affects both. The server runs on core 0, the clients on core 1.
import { spawnSync } from 'node:child_process';
import { Redis } from 'ioredis';
import { LockManager } from 'nestjs-distributed-lock';
import { RedisLockProvider } from 'nestjs-distributed-lock/redis';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { loop, oneCaller } from '../loads.mjs';
import { interleave, lasting } from '../measure.mjs';
import { ensurePeers } from '../peers/ensure-peers.mjs';
import { about, report, versionOf } from '../results.mjs';

const OURS = 'nestjs-distributed-lock';
const PEER = 'redis-semaphore';
const LEASE = 10_000;
const LIMIT = 4;
const CALLERS = 16;

const server = await startRedisServer();
spawnSync('taskset', ['-p', '-c', '0', String(server.pid)]);
const clients = [new Redis(server.port, { lazyConnect: true }), new Redis(server.port)];
const locks = new LockManager({ providers: { redis: new RedisLockProvider({ client: clients[0] }) } });
await locks.start();
const by = { [OURS]: ours, ...(ensurePeers() && { [PEER]: await peer(clients[1]) }) };

about({
  versions: { ioredis: versionOf('ioredis'), ...(by[PEER] && { [PEER]: versionOf(PEER, 'peers') }) },
  settings: `redis-server without persistence; a limit of ${LIMIT}, leases of 10 s; the Semaphore has its defaults: it polls every 10 ms while it waits`,
});

report({
  what: `One caller of a limit of ${LIMIT}, acquire + release`,
  unit: 'cycles a second',
  better: 'more',
  ours: OURS,
  rounds: await interleave(
    each((acquire) => oneCaller(acquire, lasting(200))),
    { rounds: 15 },
  ),
});

const results = await interleave(
  each((acquire) => loop(acquire, { callers: CALLERS, milliseconds: lasting(1_000) })),
  { rounds: 5 },
);
const what = `${CALLERS} waiters looping on a limit of ${LIMIT} in one process`;
report({
  what: `${what}: speed`,
  unit: 'acquisitions a second',
  better: 'more',
  ours: OURS,
  rounds: mapped(({ counts, seconds }) => counts.reduce((sum, count) => sum + count, 0) / seconds),
});
report({
  what: `${what}: fairness`,
  unit: 'fewest turns / most turns',
  better: 'more',
  ours: OURS,
  rounds: mapped(({ counts }) => Math.min(...counts) / Math.max(...counts)),
});
report({
  what: `${what}: longest wait`,
  unit: 'ms',
  better: 'less',
  ours: OURS,
  rounds: mapped(({ longest }) => longest),
});

await locks.stop();
for (const client of clients) client.disconnect();
await server.stop();

async function ours(key) {
  const lock = await locks.acquire(key, { limit: LIMIT, wait: '60s', lease: LEASE });
  return () => lock.release();
}

async function peer(client) {
  const { semaphoreOf } = await import('../peers/adapters.mjs');
  return semaphoreOf(client, LIMIT);
}

function each(measure) {
  return Object.fromEntries(Object.entries(by).map(([name, acquire]) => [name, () => measure(acquire)]));
}

function mapped(value) {
  return Object.fromEntries(Object.entries(results).map(([name, rounds]) => [name, rounds.map(value)]));
}
