// How far one Redis scales: its CPU time and memory against the number of processes, held keys, and waiting callers. A
// process is represented by a LockManager with its own connections. All of them run in this process, because two cores
// have no room for more.
import { Redis } from 'ioredis';
import { LockManager } from '../../dist/esm/index.js';
import { RedisLockProvider } from '../../dist/esm/redis.js';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { burst, manyHeld } from '../loads.mjs';
import { isQuick, lasting, median } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { serverTime } from '../redis/server-time.mjs';
import { about, report, versionOf } from '../results.mjs';

const OURS = 'nestjs-distributed-lock';
const CALLERS = 64;
const ROUNDS = isQuick ? 1 : 3;
const LEASE = '1h';
const short = (points) => (isQuick ? points.slice(0, 2) : points);

const server = pinned(await startRedisServer());
const admin = new Redis(server.port);
about({
  versions: { redis: /redis_version:(\S+)/.exec(await admin.info('server'))[1], ioredis: versionOf('ioredis') },
  settings:
    'redis-server without persistence; every process has connections of its own, and all of them run in one Node.js process',
});

await processes();
await keys();
await waiters();
admin.disconnect();
await server.stop();

/** 64 callers, each with its own key, spread across `count` processes. */
async function processes() {
  const points = short([1, 4, 16, 64]);
  const cpu = [];
  const rate = [];
  for (const count of points) {
    const fleet = await start(count);
    const cycle = async (caller) => {
      const lock = await fleet[caller % count].acquire(`scale-${caller}`, { wait: '60s' });
      await lock.release();
    };
    const rounds = [];
    for (let round = -1; round < ROUNDS; round += 1) rounds.push(await loopFor(lasting(2_000), cycle));
    // The first round is the warm-up.
    cpu.push(rounds.slice(1).map(({ microseconds }) => microseconds));
    rate.push(rounds.slice(1).map(({ perSecond }) => perSecond));
    await stop(fleet);
  }
  const along = { name: 'processes', points };
  const what = `${CALLERS} callers on as many keys, spread over processes`;
  report({ what, unit: 'µs of the server for a lock', better: 'less', ours: OURS, along, rounds: { [OURS]: cpu } });
  report({ what, unit: 'locks a second', better: 'more', ours: OURS, along, rounds: { [OURS]: rate } });
  const most = cpu.map((rounds) => [1_000_000 / median(rounds)]);
  report({
    what: `${what}: what one core of the server could do`,
    unit: 'locks a second',
    better: 'more',
    ours: OURS,
    along,
    rounds: { [OURS]: most },
  });
}

async function loopFor(milliseconds, cycle) {
  const before = await serverTime(admin);
  const startedAt = performance.now();
  let cycles = 0;
  await Promise.all(
    Array.from({ length: CALLERS }, async (_, caller) => {
      for (; performance.now() - startedAt < milliseconds; cycles += 1) await cycle(caller);
    }),
  );
  const seconds = (performance.now() - startedAt) / 1_000;
  return { perSecond: cycles / seconds, microseconds: ((await serverTime(admin)) - before) / cycles };
}

/** Many keys held at the same time by one process, without renewals. */
async function keys() {
  const points = short([10_000, 100_000, 1_000_000]);
  const cpu = [];
  const memory = [];
  for (const count of points) {
    const [locks] = await start(1);
    const before = { time: await serverTime(admin), memory: await serverMemory() };
    let most = 0;
    let held = 0;
    const acquire = async (key) => {
      const lock = await locks.acquire(key, { wait: '60s', lease: LEASE });
      held += 1;
      if (held === count) most = await serverMemory();
      return () => lock.release();
    };
    await manyHeld(acquire, count);
    cpu.push([((await serverTime(admin)) - before.time) / count]);
    memory.push([(most - before.memory) / count]);
    await stop([locks]);
  }
  const along = { name: 'keys', points };
  const what = 'Keys held at once';
  report({ what, unit: 'µs of the server for a lock', better: 'less', ours: OURS, along, rounds: { [OURS]: cpu } });
  report({
    what,
    unit: 'bytes of the server for a key',
    better: 'less',
    ours: OURS,
    along,
    rounds: { [OURS]: memory },
  });
}

/** Many callers at the same time on one key, spread across 64 processes. */
async function waiters() {
  const points = short([1_000, 10_000, 100_000]);
  const time = [];
  const cpu = [];
  for (const count of points) {
    const fleet = await start(CALLERS);
    let next = 0;
    const acquire = async (key) => {
      next += 1;
      const lock = await fleet[next % CALLERS].acquire(key, { wait: '1h' });
      return () => lock.release();
    };
    const before = await serverTime(admin);
    const { milliseconds } = await burst(acquire, count);
    time.push([(milliseconds * 1_000) / count]);
    cpu.push([((await serverTime(admin)) - before) / count]);
    await stop(fleet);
  }
  const along = { name: 'callers', points };
  const what = `Callers at once on one key in ${CALLERS} processes, until each has held it`;
  report({ what, unit: 'µs a caller', better: 'less', ours: OURS, along, rounds: { [OURS]: time } });
  report({ what, unit: 'µs of the server for a caller', better: 'less', ours: OURS, along, rounds: { [OURS]: cpu } });
}

async function start(count) {
  const fleet = Array.from({ length: count }, () => {
    const provider = new RedisLockProvider({ url: `redis://127.0.0.1:${server.port}` });
    return new LockManager({ providers: { redis: provider } });
  });
  await Promise.all(fleet.map((locks) => locks.start()));
  return fleet;
}

async function stop(fleet) {
  await Promise.all(fleet.map((locks) => locks.stop()));
}

async function serverMemory() {
  return Number(/used_memory:(\d+)/.exec(await admin.info('memory'))[1]);
}
