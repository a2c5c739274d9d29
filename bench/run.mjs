import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { ensureBuilt } from '../scripts/build.mjs';
import { commandLine, refuse } from '../scripts/command-line.mjs';
import { installedNode } from '../scripts/installed-node.mjs';
import { drawPages } from './pages.mjs';

// Each file in groups/ measures one group, prints ratios to the raw client in the same run, and saves the results in
// results/.
const available = readdirSync(join(root, 'bench/groups')).map((file) => file.replace('.mjs', ''));
const USAGE = `usage: npm run bench [-- options] [-- group …]

  group                measures only these groups: ${available.join(', ')}. Default: all
  --quick              runs everything briefly and once, as a check; saves no results
  --baseline <folder>  also measures another build of this package: the folder of a built clone
  --node <version>     measures on this version of Node.js, such as 24; saves its results separately`;

const { values: options, positionals: wanted } = commandLine(USAGE, {
  options: { quick: { type: 'boolean', default: false }, baseline: { type: 'string' }, node: { type: 'string' } },
  allowPositionals: true,
});
const isQuick = options.quick;
const unknown = wanted.filter((group) => !available.includes(group));
if (unknown.length > 0) refuse(`Unknown group: ${unknown.join(', ')}. Use one of: ${available.join(', ')}`);
if (options.node !== undefined && !/^\d+$/.test(options.node))
  refuse(`--node takes a major version, such as 24, not ${options.node}.`);
const baseline = options.baseline && resolve(options.baseline);
if (baseline && !existsSync(join(baseline, 'dist/esm/index.js'))) {
  refuse(`${baseline} does not contain a build of this package. Run "npm run build" there.`);
}

ensureInstalled();
ensureBuilt();

const node = options.node === undefined ? process.execPath : installedNode(options.node).file;
// Without pinning, one loop's speed varies by a factor of 3, because waking a thread on another core costs 35 µs.
// Servers use core 0.
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
  console.error(`Group ${group} failed with ${signal ?? status}. Its saved results are unchanged.`);
  process.exit(status ?? 1);
}

if (!isQuick) await drawPages();
