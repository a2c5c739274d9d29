import { readFileSync, writeFileSync } from 'node:fs';
import { commandLine, refuse } from '../scripts/command-line.mjs';
import { ensureInstalled } from '../scripts/ensure-installed.mjs';
import { ensureServers } from '../scripts/ensure-servers.mjs';

const USAGE = `usage: npm run mistakes [-- options] [-- mistake …]

  mistake           makes only these, by their ids in mistakes/rows, and prints their messages. Default: all, and updates
                    maintainers/lab-notes/mistakes.md
  --check alone     makes the mistakes that need no server, updates nothing, and fails if a message lacks a part, if the page is
                    outdated, or if no mistake covers an option
  --check servers   the same for the mistakes that need servers`;

const { values: options, positionals: wanted } = commandLine(USAGE, {
  options: { check: { type: 'string' } },
  allowPositionals: true,
});
if (![undefined, 'alone', 'servers'].includes(options.check)) refuse(USAGE);
ensureInstalled();
const { GROUPS, ON_SERVERS } = await import('./rows/index.ts');
const { drawn, PAGE, problemsOf } = await import('./page.ts');
const { makeAll } = await import('./results.ts');

const ids = [...GROUPS, ...ON_SERVERS].flatMap(({ mistakes }) => mistakes.map(({ id }) => id));
const unknown = wanted.filter((id) => !ids.includes(id));
if (unknown.length > 0) refuse(`Unknown mistake: ${unknown.join(', ')}\n\n${USAGE}`);

const parts = new Map();
if (options.check !== 'servers') parts.set('mistakes', await makeAll(chosen(GROUPS)));
if (options.check !== 'alone') parts.set('mistakes on servers', await onServers(chosen(ON_SERVERS)));
const results = [...parts.values()].flat().flatMap((group) => group.results);
const good = results.filter(({ missing }) => missing.length === 0).length;
const problems = problemsOf([...GROUPS, ...ON_SERVERS]);
const page = readFileSync(PAGE, 'utf8');
const current = [...parts].reduce((text, [part, groups]) => drawn(text, part, groups), page);
if (options.check === undefined) {
  for (const result of results) print(result);
  if (wanted.length === 0) writeFileSync(PAGE, current);
} else {
  for (const result of results.filter(({ missing }) => missing.length > 0)) print(result);
  const lines = page.split('\n');
  const stale = current.split('\n').find((line) => !lines.includes(line));
  if (current !== page) problems.push(`The page is outdated: run npm run mistakes. First difference: ${stale}`);
}
for (const problem of problems) console.log(problem);
console.log(`${good} of ${results.length} messages name the place, the value, and the remedy`);
process.exit(good === results.length && problems.length === 0 ? 0 : 1);

async function onServers(groups) {
  if (groups.every(({ mistakes }) => mistakes.length === 0)) return makeAll(groups);
  ensureServers(['redis-server', 'mariadbd', 'postgres', 'java', 'zookeeper', 'pgbouncer', 'memcached']);
  const { TestServers } = await import('./servers.ts');
  const servers = new TestServers();
  try {
    return await makeAll(groups, servers.placesOf);
  } finally {
    await servers.stop();
  }
}

function chosen(groups) {
  if (wanted.length === 0) return groups;
  return groups.map((group) => ({ ...group, mistakes: group.mistakes.filter(({ id }) => wanted.includes(id)) }));
}

function print({ mistake, message, missing }) {
  const grade = missing.length === 0 ? '3 of 3' : `lacks ${missing.join(', ')}`;
  console.log(`${mistake.id}: ${grade}\n  ${message.replaceAll('\n', '\n  ')}`);
}
