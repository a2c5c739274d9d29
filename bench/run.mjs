import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { build } from '../scripts/build.mjs';

// Each file in rows/ measures one group of rows and prints ratios against the raw thing in the same run.
const available = readdirSync(join(root, 'bench/rows')).map((file) => file.replace('.mjs', ''));
const wanted = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const unknown = wanted.filter((row) => !available.includes(row));
if (unknown.length > 0) {
  console.error(`Unknown: ${unknown.join(', ')}. There are: ${available.join(', ')}`);
  process.exit(2);
}

ensureInstalled();
build();

// Unpinned, one loop runs at two speeds that differ by 3: wake-ups across cores cost 35 µs each. Servers go to core 0.
const canPin = existsSync('/usr/bin/taskset');
for (const row of wanted.length > 0 ? wanted : available) {
  const command = [process.execPath, join(root, 'bench/rows', `${row}.mjs`)];
  const [file, ...args] = canPin ? ['taskset', '-c', '1', ...command] : command;
  const { status } = spawnSync(file, args, { cwd: root, stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
