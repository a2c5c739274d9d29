// Locks by majority, against the libraries of that name in the same run, with their defaults. The servers run on core 0, the clients
// on core 1; candidates take turns, so that what disturbs the machine disturbs all.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { run } from '../../scripts/ensure-installed.mjs';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { interleave, median } from '../measure.mjs';
import { burst, manyKeys, oneCaller } from '../redis/loads.mjs';

const peersFolder = fileURLToPath(new URL('../peers', import.meta.url));
if (!existsSync(`${peersFolder}/node_modules/redlock4`)) {
  console.log('Installing the libraries to compare with …');
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: peersFolder });
}
const { candidate, names, OURS } = await import('../redlock/candidates.mjs');

// A peer that waits for all votes would wait for as long as the node hangs.
const HUNG_AT_MOST = 2_000;

for (const size of [3, 5]) {
  const servers = await Promise.all(Array.from({ length: size }, () => startRedisServer()));
  for (const { pid } of servers) spawnSync('taskset', ['-p', '-c', '0', String(pid)]);
  const ports = servers.map(({ port }) => port);
  const by = {};
  for (const name of names) by[name] = await candidate(name, ports);
  const each = (measure) => Object.fromEntries(names.map((name) => [name, () => measure(by[name].take)]));

  console.log(`\n=== ${size} nodes, Node ${process.version}; medians`);
  const one = await interleave(
    each((take) => oneCaller(take, 300)),
    { rounds: 11 },
  );
  report('one caller, cycles a second', one, 'more');
  const many = await interleave(
    each((take) => manyKeys(take, 300)),
    { rounds: 11 },
  );
  report('64 callers on 64 keys, cycles a second', many, 'more');
  report('burst of 16 on one key, ms until all have had it', await interleave(each(burst), { rounds: 7 }), 'less');

  servers[0].signal('SIGSTOP');
  report('one node hung, ms until the lock is taken', await interleave(each(decision), { rounds: 15 }), 'less');
  servers[0].signal('SIGCONT');

  for (const { stop } of Object.values(by)) await stop();
  await Promise.all(servers.map((server) => server.stop()));
}
process.exit(0);

/** ms until a free lock is taken, at most HUNG_AT_MOST. */
async function decision(take) {
  const startedAt = performance.now();
  const taken = take(`hung-${startedAt}`).then(
    (release) => release,
    () => undefined,
  );
  let timer;
  const release = await Promise.race([taken, new Promise((done) => (timer = setTimeout(done, HUNG_AT_MOST)))]);
  clearTimeout(timer);
  const took = performance.now() - startedAt;
  // Not awaited: a peer may wait for the hung node to release as well.
  release?.().catch(() => undefined);
  await new Promise((done) => setTimeout(done, 5));
  return took;
}

function report(title, results, better) {
  console.log(`\n${title}`);
  const ours = median(results[OURS]);
  for (const [name, values] of Object.entries(results)) {
    const value = median(values);
    const factor = better === 'more' ? ours / value : value / ours;
    const note =
      name === OURS
        ? ''
        : `${factor.toFixed(2)} × ${factor >= 1 ? 'behind' : 'AHEAD'} of ours`.replace('behind of', 'behind');
    console.log(`  ${name.padEnd(26)} ${value.toFixed(value < 100 ? 2 : 0).padStart(9)}  ${note}`);
  }
}
