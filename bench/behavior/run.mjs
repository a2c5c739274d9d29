import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ensureBuilt } from '../../scripts/build.mjs';
import { commandLine, refuse } from '../../scripts/command-line.mjs';
import { ensureInstalled } from '../../scripts/ensure-installed.mjs';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { drawPages, RESULTS } from './pages.mjs';

// Each file in rows/ shows one behavior of all packages.
const ROWS = [
  'waiters',
  'wait',
  'long-tasks',
  'loss',
  'fencing',
  'nested-call',
  'crash',
  'outage',
  'busy-over-http',
  'own-errors',
  'order-of-decorators',
  'minified-code',
  'nest-12',
  'backends',
  'at-most-n',
];
const USAGE = `usage: npm run compare [-- options] [-- row …]

  row      runs only these rows: ${ROWS.join(', ')}. Default: all, which saves the results and updates the page
  --draw   updates the page from the saved results`;

const { values: options, positionals: wanted } = commandLine(USAGE, {
  options: { draw: { type: 'boolean', default: false } },
  allowPositionals: true,
});
const unknown = wanted.filter((row) => !ROWS.includes(row));
if (unknown.length > 0) refuse(`Unknown row: ${unknown.join(', ')}. Use one of: ${ROWS.join(', ')}`);

if (!options.draw) {
  ensureInstalled();
  ensureServers(['redis-server', 'java', 'zookeeper', 'memcached']);
  ensureBuilt();
  const rows = {};
  for (const row of wanted.length > 0 ? wanted : ROWS) rows[row] = await show(row);
  if (wanted.length === 0) await keep(rows);
}
if (wanted.length === 0) drawPages();

/** Runs a row's program. */
async function show(row) {
  const program = fork(join(import.meta.dirname, 'rows', `${row}.mjs`));
  let result;
  program.on('message', (message) => (result = message));
  const [code, signal] = await once(program, 'exit');
  if (code === 0 && result) return result;
  console.error(`Row ${row} failed with ${signal ?? code}. The saved results are unchanged.`);
  process.exit(code || 1);
}

async function keep(rows) {
  const { manifestOf, packages } = await import('./packages.mjs');
  const kept = {
    date: new Date().toISOString().slice(0, 10),
    node: process.versions.node,
    nest: manifestOf({ name: '@nestjs/core' }).version,
    packages: Object.fromEntries(packages.map((each) => [each.name, manifestOf(each).version.replace(/^v/, '')])),
    rows,
  };
  writeFileSync(RESULTS, `${JSON.stringify(kept, undefined, 2)}\n`);
}
