// Draws results.json into docs/servers.md and the README. Nobody edits the text between their markers.
import { join } from 'node:path';
import { compact, drawPage } from '../../bench/markdown.mjs';
import { root } from '../../scripts/ensure-installed.mjs';
import { keptResults, tableOf } from './results.mjs';

/** The generated parts of each page, by the names of their markers. */
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

/** Each reason for which tests were not run, and where. */
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

/** 8.0.2 is 8.0, 18.6 of Postgres is 18, as they are named; memcached keeps all three. */
function shortened(server, version) {
  const parts = { Postgres: 1, 'Node.js': 1, memcached: 3 }[server] ?? 2;
  return version.split('.').slice(0, parts).join('.');
}

function listed(words) {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}
