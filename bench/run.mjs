import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { ensureBuilt } from '../scripts/build.mjs';
import { commandLine, refuse } from '../scripts/command-line.mjs';
import { drawCharts } from './charts.mjs';

// Each file in rows/ measures one group of rows, prints ratios against the raw thing in the same run, and keeps them in results/.
const available = readdirSync(join(root, 'bench/rows')).map((file) => file.replace('.mjs', ''));
const USAGE = `usage: npm run bench [-- options] [-- group …]

  group     only these groups of rows: ${available.join(', ')}. Default: everything
  --quick   everything once and shortly, to see that it runs; nothing is kept`;

const { values: options, positionals: wanted } = commandLine(USAGE, {
  options: { quick: { type: 'boolean', default: false } },
  allowPositionals: true,
});
const isQuick = options.quick;
const unknown = wanted.filter((row) => !available.includes(row));
if (unknown.length > 0) refuse(`Unknown: ${unknown.join(', ')}. There are: ${available.join(', ')}`);

ensureInstalled();
ensureBuilt();

// Unpinned, one loop runs at two speeds that differ by 3: wake-ups across cores cost 35 µs each. Servers go to core 0.
const canPin = existsSync('/usr/bin/taskset');
for (const row of wanted.length > 0 ? wanted : available) {
  const command = [process.execPath, join(root, 'bench/rows', `${row}.mjs`)];
  const [file, ...args] = canPin ? ['taskset', '-c', '1', ...command] : command;
  const env = { ...process.env, BENCH_QUICK: isQuick ? '1' : '', BENCH_PINNED: canPin ? '1' : '' };
  const { status, signal } = spawnSync(file, args, { cwd: root, stdio: 'inherit', env });
  if (status === 0) continue;
  console.error(`Row ${row} ended with ${signal ?? status}; its last results stay as they were.`);
  process.exit(status ?? 1);
}

if (!isQuick) drawCharts();
