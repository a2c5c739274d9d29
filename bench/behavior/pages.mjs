// Writes results.json and scheduling.json into docs/comparisons.md. Don't edit the text between its markers.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../../scripts/ensure-installed.mjs';
import { compact, drawPage, markdownTable } from '../markdown.mjs';

/** The results that `npm run compare` saves. */
export const RESULTS = join(import.meta.dirname, 'results.json');
/** The results that `scheduling.mjs` saves. */
export const SCHEDULING = join(import.meta.dirname, 'scheduling.json');

/** The generated parts of each page, by the names of their markers. */
export function partsOfPages() {
  const [locks, scheduling] = [RESULTS, SCHEDULING].map((file) => JSON.parse(readFileSync(file, 'utf8')));
  const rows = Object.entries(locks.rows).map(([row, { question, cells }]) => [
    `[${question}](../bench/behavior/rows/${row}.mjs)`,
    cells,
  ]);
  return {
    [join(root, 'docs/comparisons.md')]: {
      table: tableOf(locks, rows),
      schedulers: tableOf(scheduling, Object.entries(scheduling.rows)),
    },
  };
}

export function drawPages() {
  for (const [page, parts] of Object.entries(partsOfPages())) drawPage(page, parts);
}

/** All packages' results, with one row for each question. */
function tableOf({ date, node, nest, packages }, rows) {
  const names = Object.keys(packages);
  const table = markdownTable(
    ['', ...names.map((name) => `${name.replace(' 5 beta', '')} ${packages[name]}`)],
    rows.map(([question, cells]) => [question, ...names.map((name) => cells[name])]),
    'text',
  );
  const versions = [`Node ${node}`, ...(nest === undefined ? [] : [`Nest ${nest}`])].join(' and ');
  return `\n${compact(table)}\n\nMeasured on ${date} with ${versions}.\n`;
}

if (import.meta.filename === process.argv[1]) drawPages();
