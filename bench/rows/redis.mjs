// The Redis rows of the design: ratios against the raw client, and against other libraries with their defaults, in the
// same run. The server runs on core 0, the clients on core 1; candidates take turns, so that what disturbs the machine disturbs all.
import { fork, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { run } from '../../scripts/ensure-installed.mjs';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { interleave, median } from '../measure.mjs';
import { burst, loop, manyKeys, oneCaller } from '../loads.mjs';

const peersFolder = fileURLToPath(new URL('../peers', import.meta.url));
if (!existsSync(`${peersFolder}/node_modules`) && !process.env.BENCH_WITHOUT_PEERS) {
  console.log('Installing the libraries to compare with …');
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: peersFolder });
}
const { candidate, OURS, peers, RAW } = await import('../redis/candidates.mjs');

const server = await startRedisServer();
spawnSync('taskset', ['-p', '-c', '0', String(server.pid)]);
const admin = new Redis(server.port);
const rivals = Object.keys(await peers());

const by = {};
for (const name of [RAW, OURS, ...rivals]) by[name] = await candidate(name, server.port);
const each = (names, measure) => Object.fromEntries(names.map((name) => [name, () => measure(by[name].take)]));

console.log(`\nRedis ${/redis_version:(\S+)/.exec(await admin.info('server'))[1]}, Node ${process.version}; medians`);

compare(
  'one caller, acquire + release',
  0.95,
  await interleave(
    each([RAW, OURS, ...rivals], (take) => oneCaller(take, 200)),
    { rounds: 15 },
  ),
);
compare(
  '64 callers on 64 keys',
  1.8,
  await interleave(
    each([RAW, OURS, ...rivals], (take) => manyKeys(take, 200)),
    { rounds: 15 },
  ),
);

const bursts = await interleave(each([OURS, ...rivals.filter((name) => name !== '@verrou/core')], burst), {
  rounds: 15,
});
await admin.config('RESETSTAT');
for (let round = 0; round < 20; round += 1) await burst(by[OURS].take);
const operations = (await calls()) / (20 * 16);
console.log('\nburst of 16 on one key, ms until all have had it');
for (const [name, times] of Object.entries(bursts))
  line(name, median(times).toFixed(2), name === OURS ? verdict(median(times) <= 2, '2 ms') : '');
line('', operations.toFixed(2), `script calls an acquisition, bar 2.0`);

for (const processes of [1, 2]) await loopers(processes);
await idle();

for (const { stop } of Object.values(by)) await stop();
admin.disconnect();
await server.stop();

function compare(title, bar, rates) {
  console.log(`\n${title}, cycles a second`);
  const base = rates[RAW];
  for (const [name, values] of Object.entries(rates)) {
    const ratio = median(values.map((value, round) => value / base[round]));
    line(
      name,
      String(Math.round(median(values))),
      `${ratio.toFixed(2)} × raw  ${name === OURS ? verdict(ratio >= bar, `${bar} ×`) : ''}`,
    );
  }
}

async function loopers(processes) {
  const names = [RAW, OURS, ...rivals];
  const results = await interleave(
    Object.fromEntries(
      names.map((name) => [
        name,
        () => (processes === 1 ? loop(by[name].take, { callers: 16, milliseconds: 1_000 }) : forked(name)),
      ]),
    ),
    { rounds: processes === 1 ? 3 : 2 },
  );
  const rate = ({ counts, seconds }) => counts.reduce((sum, count) => sum + count, 0) / seconds;
  const best = Math.max(...rivals.map((name) => median(results[name].map(rate))));
  const bar = processes === 1 ? 1.5 : 1.3;
  console.log(
    `\n16 waiters looping on one key in ${processes} process${processes > 1 ? 'es' : ''}, acquisitions a second`,
  );
  for (const [name, rounds] of Object.entries(results)) {
    const speed = median(rounds.map(rate));
    const fairness = median(rounds.map(({ counts }) => Math.max(...counts) / Math.min(...counts)));
    const longest = median(rounds.map((round) => round.longest));
    const ours =
      name === OURS
        ? `${(speed / best).toFixed(2)} × the best of the others  ${verdict(speed >= bar * best, `${bar} ×`)}`
        : '';
    line(
      name,
      String(Math.round(speed)),
      `max/min ${fairness.toFixed(2)}  longest wait ${longest.toFixed(0)} ms  ${ours}`,
    );
  }
}

async function forked(name) {
  const children = [0, 1].map(() =>
    fork(fileURLToPath(new URL('../redis/looper.mjs', import.meta.url)), [name, String(server.port), '8', '1500']),
  );
  const message = (child) => new Promise((resolve) => child.once('message', resolve));
  await Promise.all(children.map(message));
  const results = children.map(message);
  for (const child of children) child.send('go');
  const parts = await Promise.all(results);
  return {
    counts: parts.flatMap(({ counts }) => counts),
    longest: Math.max(...parts.map(({ longest }) => longest)),
    seconds: Math.max(...parts.map(({ seconds }) => seconds)),
  };
}

async function idle() {
  const { take } = by[OURS];
  // Not renewed, so that only the waiting is counted.
  const held = await take.locks.acquire('idle', { lease: '60s', renew: false });
  const waiters = Array.from({ length: 100 }, async () => (await take('idle'))());
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  await admin.config('RESETSTAT');
  await new Promise((resolve) => setTimeout(resolve, 5_000));
  const perSecond = (await calls()) / 5;
  console.log('\n100 idle waiters');
  line(OURS, perSecond.toFixed(1), `commands a second  ${verdict(perSecond <= 1, '1')}`);
  await held.release();
  await Promise.all(waiters);
}

async function calls() {
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(await admin.info('commandstats'))?.[1] ?? 0);
}

function line(name, value, rest) {
  console.log(`  ${name.padEnd(26)} ${value.padStart(8)}  ${rest}`);
}

function verdict(isWithin, bar) {
  return `${isWithin ? 'within' : 'MISSES'} the bar of ${bar}`;
}
