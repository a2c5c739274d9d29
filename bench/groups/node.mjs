// What a lock costs the client on Node 20 and on Node 24. The npm package `node` provides the binaries. Node 20
// implements AsyncLocalStorage with promise hooks, which a process's first lock enables.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { startRedisServer } from '../../test/servers/redis-server.mjs';
import { installedNode } from '../../scripts/installed-node.mjs';
import { interleave, lasting, mapped } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { about, report, versionOf } from '../results.mjs';

const program = fileURLToPath(new URL('../node/program.mjs', import.meta.url));
const nodes = Object.fromEntries(['20', '24'].map((version) => [`Node ${version}`, installedNode(version)]));

const server = pinned(await startRedisServer());
about({
  versions: {
    ...Object.fromEntries(Object.entries(nodes).map(([name, { version }]) => [name, version])),
    ioredis: versionOf('ioredis'),
  },
  settings: 'CPU time of the client; each round is a new process',
});

const results = await interleave(
  Object.fromEntries(Object.entries(nodes).map(([name, { file }]) => [name, () => measure(file)])),
  { rounds: 5, warmUp: 0, budget: Infinity },
);
for (const [part, what, unit] of [
  ['before', 'An await of a process before its first lock', 'ns'],
  ['after', 'An await of a process after its first lock', 'ns'],
  ['memory', 'withLock on the memory provider', 'µs a call'],
  ['raw', '64 callers on 64 keys, raw ioredis', 'µs a cycle'],
  ['ours', '64 callers on 64 keys, this library', 'µs a cycle'],
]) {
  report({ what, unit, better: 'less', ours: 'Node 24', base: 'Node 20', rounds: mapped(results, (all) => all[part]) });
}
await server.stop();

async function measure(execPath) {
  const child = fork(program, [String(server.port), String(lasting(20_000))], { execPath, execArgv: [] });
  const [result] = await once(child, 'message');
  return result;
}
