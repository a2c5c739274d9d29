// ZooKeeper: ratios to the raw client in the same run. The server runs on core 0, the clients on core 1. Candidates
// take turns, so that other load on the machine affects all of them.
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startZooKeeper } from '../../test/servers/zookeeper-server.mjs';
import { builds, OURS } from '../builds.mjs';
import { manyKeys, oneCaller } from '../loads.mjs';
import { cpuNanoseconds, interleave, isQuick, lasting } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { about, report, versionOf } from '../results.mjs';
import { candidate, RAW, RAW_PIPELINED } from '../zookeeper/candidates.mjs';

const NAMES = [RAW, RAW_PIPELINED, ...builds];
const BAR = 0.9;
const DISTINCT = isQuick ? 1_000 : 30_000;
/** Fewer than a session may hold. */
const HELD = DISTINCT / 10;

ensureServers(['java', 'zookeeper']);

for (const forceSync of [false, true]) {
  const server = pinned(await startZooKeeper({ forceSync, tickTime: 2_000 }));
  const by = {};
  for (const name of NAMES) by[name] = await candidate(name, server.connectString);
  const version = /^Zookeeper version: ([\d.]+)/.exec(await server.ask('srvr'))[1];
  if (!forceSync) {
    about({
      versions: { ZooKeeper: version, 'node-zookeeper-client': versionOf('node-zookeeper-client') },
      settings:
        'One server, sessions of 20 s; writes are synced to disk or not (forceSync). The raw client is node-zookeeper-client: it creates its ' +
        'node, lists the queue and deletes it. Pipelined, it requests the list before the first answer arrives, as this library does',
    });
  }
  const disk = forceSync ? 'each write synced to disk' : 'writes not synced';

  // Let the server's JIT compile its code.
  for (const name of NAMES) await manyKeys(by[name].acquire, lasting(1_000));
  const rates = (load) =>
    interleave(Object.fromEntries(NAMES.map((name) => [name, () => load(by[name].acquire)])), { rounds: 15 });
  compare(`One caller, acquire + release, ${disk}`, await rates((acquire) => oneCaller(acquire, lasting(200))));
  compare(`64 callers on 64 keys, ${disk}`, await rates((acquire) => manyKeys(acquire, lasting(200))));
  if (!forceSync) await cpuTime(by);
  // One run is long enough.
  if (!forceSync) await distinct(by[OURS].acquire, server);

  for (const { stop } of Object.values(by)) await stop();
  await server.stop();
}

function compare(what, rounds) {
  const bar = { atLeast: BAR, of: 'base' };
  report({ what, unit: 'cycles a second', better: 'more', ours: OURS, base: RAW, bar, rounds });
}

/** The CPU time of one cycle in the client: 64 in flight, each with its own key. */
async function cpuTime(by) {
  const callers = 64;
  const cycles = lasting(50);
  const cost = async ({ acquire }) => {
    const nanoseconds = await cpuNanoseconds(cycles, () =>
      Promise.all(Array.from({ length: callers }, async (_, caller) => (await acquire(`cpu-${caller}`))())),
    );
    return nanoseconds / callers / 1_000;
  };
  const rounds = await interleave(Object.fromEntries(NAMES.map((name) => [name, () => cost(by[name])])), { rounds: 7 });
  const what = `${callers} callers: CPU time of a cycle, client`;
  report({ what, unit: 'µs a cycle', better: 'less', ours: OURS, base: RAW, rounds });
}

/** New keys: first acquired and released by 64 callers, then a tenth as many held at the same time. */
async function distinct(acquire, server) {
  const nodes = async () => Number(/zk_znode_count\t(\d+)/.exec(await server.ask('mntr'))[1]);
  const before = await nodes();
  const extra = async (where) => `${(await nodes()) - before} nodes ${where}`;
  const rounds = {};
  const notes = {};
  rounds['acquire + release'] = [
    await perSecond(DISTINCT, (index) => acquire(`distinct-${index}`).then((release) => release())),
  ];
  notes['acquire + release'] = await extra('left on the server');
  const releases = [];
  rounds['acquire, all kept'] = [await perSecond(HELD, async (index) => releases.push(await acquire(`held-${index}`)))];
  notes['acquire, all kept'] = await extra(`for ${releases.length} locks held at once`);
  rounds['release of all'] = [await perSecond(HELD, () => releases.pop()())];
  notes['release of all'] = await extra('left on the server');
  const what = `${DISTINCT.toLocaleString('en')} distinct keys, 64 in flight, one run`;
  report({ what, unit: 'a second', better: 'more', rounds, notes });
}

async function perSecond(count, task) {
  const startedAt = performance.now();
  let next = 0;
  const caller = async () => {
    while (next < count) await task(next++);
  };
  await Promise.all(Array.from({ length: 64 }, caller));
  return Math.round((count / (performance.now() - startedAt)) * 1_000);
}
