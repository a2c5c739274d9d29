// The ZooKeeper rows of the design: ratios against the raw client in the same run. The server runs on core 0, the clients
// on core 1; candidates take turns, so that what disturbs the machine disturbs all.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startZooKeeper } from '../../test/servers/zookeeper-server.mjs';
import { manyKeys, oneCaller } from '../loads.mjs';
import { interleave, median } from '../measure.mjs';
import { candidate, OURS, RAW, RAW_PIPELINED } from '../zookeeper/candidates.mjs';

const NAMES = [RAW, RAW_PIPELINED, OURS];
const BAR = 0.9;
const DISTINCT = 100_000;

ensureServers(['java', 'zookeeper']);
const client = JSON.parse(
  readFileSync(new URL('../../node_modules/node-zookeeper-client/package.json', import.meta.url)),
);

for (const forceSync of [false, true]) {
  const server = await startZooKeeper({ forceSync, tickTime: 2_000 });
  // All its threads, among them those of the virtual machine.
  spawnSync('taskset', ['-a', '-p', '-c', '0', String(server.pid)]);
  const by = {};
  for (const name of NAMES) by[name] = await candidate(name, server.connectString);
  const version = /^Zookeeper version: ([\d.]+)/.exec(await server.ask('srvr'))[1];
  const settings = `one server, forceSync ${forceSync ? 'on: each write waits for the disk' : 'off'}, session 20 s`;
  console.log(`\nZooKeeper ${version} (${settings}), node-zookeeper-client ${client.version}, Node ${process.version}`);

  // For the compiler of the server.
  for (const name of NAMES) await manyKeys(by[name].take, 1_000);
  const rates = (load) =>
    interleave(Object.fromEntries(NAMES.map((name) => [name, () => load(by[name].take)])), { rounds: 15 });
  compare('one caller, acquire + release', await rates((take) => oneCaller(take, 200)));
  compare('64 callers on 64 keys', await rates((take) => manyKeys(take, 200)));
  // Once is enough, and long enough.
  if (!forceSync) await distinct(by[OURS].take, server);

  for (const { stop } of Object.values(by)) await stop();
  await server.stop();
}

function compare(title, rates) {
  console.log(`\n${title}, cycles a second, medians`);
  const base = rates[RAW];
  for (const [name, values] of Object.entries(rates)) {
    const ratio = median(values.map((value, round) => value / base[round]));
    const verdict = name === OURS ? `${ratio >= BAR ? 'within' : 'MISSES'} the bar of ${BAR} ×` : '';
    line(name, Math.round(median(values)), `${ratio.toFixed(2)} × raw  ${verdict}`);
  }
}

/** Many keys that were never used before: first one after the other by 64 callers, then all held at once. */
async function distinct(take, server) {
  console.log(`\n${DISTINCT.toLocaleString('en')} distinct keys, 64 in flight, a second`);
  const nodes = async () => Number(/zk_znode_count\t(\d+)/.exec(await server.ask('mntr'))[1]);
  const before = await nodes();
  const cycles = await perSecond((index) => take(`distinct-${index}`).then((release) => release()));
  line('acquire + release', cycles, `${(await nodes()) - before} nodes left on the server`);
  const releases = [];
  const acquired = await perSecond(async (index) => releases.push(await take(`held-${index}`)));
  line('acquire, all kept', acquired, `${(await nodes()) - before} nodes for ${releases.length} locks held at once`);
  const released = await perSecond(() => releases.pop()());
  line('release of all', released, `${(await nodes()) - before} nodes left on the server`);
}

async function perSecond(task) {
  const startedAt = performance.now();
  let next = 0;
  const caller = async () => {
    while (next < DISTINCT) await task(next++);
  };
  await Promise.all(Array.from({ length: 64 }, caller));
  return Math.round((DISTINCT / (performance.now() - startedAt)) * 1_000);
}

function line(name, value, rest) {
  console.log(`  ${name.padEnd(26)} ${String(value).padStart(8)}  ${rest}`);
}
