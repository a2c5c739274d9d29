// The ZooKeeper rows of the design: ratios against the raw client in the same run. The server runs on core 0, the clients
// on core 1; candidates take turns, so a disturbance of the machine affects all.
import { spawnSync } from 'node:child_process';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startZooKeeper } from '../../test/servers/zookeeper-server.mjs';
import { manyKeys, oneCaller } from '../loads.mjs';
import { interleave, isQuick, lasting } from '../measure.mjs';
import { about, report, versionOf } from '../results.mjs';
import { candidate, OURS, RAW, RAW_PIPELINED } from '../zookeeper/candidates.mjs';

const NAMES = [RAW, RAW_PIPELINED, OURS];
const BAR = 0.9;
const DISTINCT = isQuick ? 1_000 : 100_000;

ensureServers(['java', 'zookeeper']);

for (const forceSync of [false, true]) {
  const server = await startZooKeeper({ forceSync, tickTime: 2_000 });
  // All its threads, among them those of the virtual machine.
  spawnSync('taskset', ['-a', '-p', '-c', '0', String(server.pid)]);
  const by = {};
  for (const name of NAMES) by[name] = await candidate(name, server.connectString);
  const version = /^Zookeeper version: ([\d.]+)/.exec(await server.ask('srvr'))[1];
  if (!forceSync) {
    about({
      versions: { ZooKeeper: version, 'node-zookeeper-client': versionOf('node-zookeeper-client') },
      settings:
        'One server, sessions of 20 s; each write waits for the disk or not (forceSync). The raw client creates its node, lists the ' +
        'queue and deletes it; pipelined, it does not wait for the first answer before it asks for the list, as ours',
    });
  }
  const disk = forceSync ? 'each write on the disk' : 'writes not waited for';

  // For the compiler of the server.
  for (const name of NAMES) await manyKeys(by[name].take, lasting(1_000));
  const rates = (load) =>
    interleave(Object.fromEntries(NAMES.map((name) => [name, () => load(by[name].take)])), { rounds: 15 });
  compare(`One caller, acquire + release, ${disk}`, await rates((take) => oneCaller(take, lasting(200))));
  compare(`64 callers on 64 keys, ${disk}`, await rates((take) => manyKeys(take, lasting(200))));
  // Once is enough, and long enough.
  if (!forceSync) await distinct(by[OURS].take, server);

  for (const { stop } of Object.values(by)) await stop();
  await server.stop();
}

function compare(what, rounds) {
  const bar = { atLeast: BAR, of: 'base' };
  report({ what, unit: 'cycles a second', better: 'more', ours: OURS, base: RAW, bar, rounds });
}

/** Many keys that were never used before: first one after the other by 64 callers, then all held at once. */
async function distinct(take, server) {
  const nodes = async () => Number(/zk_znode_count\t(\d+)/.exec(await server.ask('mntr'))[1]);
  const before = await nodes();
  const extra = async (where) => `${(await nodes()) - before} nodes ${where}`;
  const rounds = {};
  const notes = {};
  rounds['acquire + release'] = [await perSecond((index) => take(`distinct-${index}`).then((release) => release()))];
  notes['acquire + release'] = await extra('left on the server');
  const releases = [];
  rounds['acquire, all kept'] = [await perSecond(async (index) => releases.push(await take(`held-${index}`)))];
  notes['acquire, all kept'] = await extra(`for ${releases.length} locks held at once`);
  rounds['release of all'] = [await perSecond(() => releases.pop()())];
  notes['release of all'] = await extra('left on the server');
  const what = `${DISTINCT.toLocaleString('en')} distinct keys, 64 in flight, one run`;
  report({ what, unit: 'a second', better: 'more', rounds, notes });
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
