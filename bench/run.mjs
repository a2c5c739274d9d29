import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { ensureBuilt } from '../scripts/build.mjs';
import { commandLine, refuse } from '../scripts/command-line.mjs';
import { installedNode } from '../scripts/installed-node.mjs';
import { drawPages } from './pages.mjs';

// Each file in groups/ measures one group, prints ratios against the raw client in the same run, and keeps the results in results/.
const available = readdirSync(join(root, 'bench/groups')).map((file) => file.replace('.mjs', ''));
const USAGE = `usage: npm run bench [-- options] [-- group …]

  group                only these groups: ${available.join(', ')}. Default: all
  --quick              runs everything once and briefly, as a check; no result is kept
  --baseline <folder>  measures another build of this package too: a clone of another commit, built
  --node <version>     measures on this version of Node.js, such as 24; its results are kept apart`;

const { values: options, positionals: wanted } = commandLine(USAGE, {
  options: { quick: { type: 'boolean', default: false }, baseline: { type: 'string' }, node: { type: 'string' } },
  allowPositionals: true,
});
const isQuick = options.quick;
const unknown = wanted.filter((group) => !available.includes(group));
if (unknown.length > 0) refuse(`Unknown group: ${unknown.join(', ')}. Use one of: ${available.join(', ')}`);
if (options.node !== undefined && !/^\d+$/.test(options.node))
  refuse(`--node takes a main version, such as 24, not ${options.node}.`);
const baseline = options.baseline && resolve(options.baseline);
if (baseline && !existsSync(join(baseline, 'dist/esm/index.js'))) {
  refuse(`${baseline} holds no build of this package. Run "npm run build" there.`);
}

ensureInstalled();
ensureBuilt();

const node = options.node === undefined ? process.execPath : installedNode(options.node).file;
// Without pinning, one loop runs at two speeds that differ by 3, because a wake-up across cores costs 35 µs. Servers use core 0.
const canPin = existsSync('/usr/bin/taskset');
for (const group of wanted.length > 0 ? wanted : available) {
  const command = [node, join(root, 'bench/groups', `${group}.mjs`)];
  const [file, ...args] = canPin ? ['taskset', '-c', '1', ...command] : command;
  const env = {
    ...process.env,
    BENCH_QUICK: isQuick ? '1' : '',
    BENCH_PINNED: canPin ? '1' : '',
    BENCH_BASELINE: baseline ?? '',
    BENCH_NODE: options.node ?? '',
  };
  const { status, signal } = spawnSync(file, args, { cwd: root, stdio: 'inherit', env });
  if (status === 0) continue;
  console.error(`Group ${group} ended with ${signal ?? status}. Its last results are unchanged.`);
  process.exit(status ?? 1);
}

if (!isQuick) await drawPages();
