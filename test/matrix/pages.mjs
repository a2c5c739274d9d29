// Keeps the newest result of each row in results.json, and writes them to docs/servers.md and the README. Don't edit
// the text between their markers.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { compact, drawPage, markdownTable } from '../../bench/markdown.mjs';
import { root } from '../../scripts/ensure-installed.mjs';
import { ROWS } from './rows.mjs';

const FILE = join(import.meta.dirname, 'results.json');

/** Returns the kept results in the order of the rows. */
function keptResults() {
  const kept = existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : [];
  return ROWS.flatMap(({ name }) => kept.find((result) => result.row === name) ?? []);
}

/** Replaces an earlier result of the row, and returns the new one. */
export function keep(result) {
  const others = keptResults().filter(({ row }) => row !== result.row);
  writeFileSync(FILE, `${JSON.stringify([...others, result], null, 2)}\n`);
  return result;
}

export function tableOf(results) {
  return markdownTable(
    ['server', 'version', 'test files', 'passed', 'failed', 'skipped', 'commit', 'date'],
    results.map((result) => {
      const { server, version, refused, specs, passed, failed, commit, date } = result;
      const counts = refused === undefined ? [specs, passed, failed, skippedOf(result)] : ['refused', '', failed, ''];
      return [server, version, ...counts, commit, date];
    }),
  );
}

/** Counts the tests that didn't run. The reasons are listed below the table. */
function skippedOf({ skipped }) {
  return Object.values(skipped).reduce((total, count) => total + count, 0);
}

/** Returns the generated parts of each page by marker. */
export function partsOfPages() {
  const results = keptResults();
  return {
    [join(root, 'docs/servers.md')]: {
      table: compact(tableOf(results)),
      skipped: reasonsOf(results),
      refused: refusalsOf(results),
    },
    [join(root, 'README.md')]: { tested: summaryOf(results) },
  };
}

export function drawPages() {
  for (const [page, parts] of Object.entries(partsOfPages())) drawPage(page, parts);
}

/** Lists the reasons why tests didn't run, and where. */
function reasonsOf(results) {
  const places = new Map();
  for (const { server, version, skipped = {} } of results) {
    for (const reason of Object.keys(skipped)) {
      const versions = places.get(reason) ?? new Map();
      places.set(reason, versions.set(server, [...(versions.get(server) ?? []), version]));
    }
  }
  const listOf = (versions) => Array.from(versions, ([server, list]) => `${server} ${listed(list)}`).join('; ');
  return Array.from(places, ([reason, versions]) => `- ${reason} (${listOf(versions)})`).join('\n');
}

function refusalsOf(results) {
  return results.flatMap(({ refused }) => (refused === undefined ? [] : `- ${refused}`)).join('\n');
}

function summaryOf(results) {
  const green = results.filter(({ refused, failed }) => refused === undefined && failed === 0);
  const servers = [...new Set(green.map(({ server }) => server))].map((server) => {
    const versions = green.filter((each) => each.server === server).map(({ version }) => shortened(server, version));
    return `${server} ${listed(versions)}`;
  });
  return `Tested on ${listed(servers)}: [which tests, and which servers are refused](docs/servers.md).`;
}

/** Shortens versions to their usual form: 8.0.2 to 8.0, Postgres 18.6 to 18. memcached keeps all three parts. */
function shortened(server, version) {
  const parts = { Postgres: 1, 'Node.js': 1, memcached: 3 }[server] ?? 2;
  return version.split('.').slice(0, parts).join('.');
}

function listed(words) {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}
