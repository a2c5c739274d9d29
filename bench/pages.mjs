// Writes bench/results/*.json into docs/benchmarks.md, docs/operate/deploy.md, maintainers/lab-notes/benchmarks.md and
// docs/benchmarks/*.svg. Don't edit the text between the markers of these pages.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { BASELINE } from './builds.mjs';
import { comparisons, conclusion, isGivenUp, times } from './comparison.mjs';
import { compact, drawPage, markdownTable } from './markdown.mjs';
import { median } from './measure.mjs';
import { lacksPeers, number, summary, verdict } from './table.mjs';

const RESULTS = join(root, 'bench/results');
/** The results of `npm run bench -- --node 24`. */
const RESULTS_ON_NODE_24 = join(RESULTS, 'node-24');
const PICTURES = join(root, 'docs/benchmarks');
const PAGE = join(root, 'docs/benchmarks.md');
const SCALE_PAGE = join(root, 'docs/operate/deploy.md');
const LAB_NOTES = join(root, 'maintainers/lab-notes/benchmarks.md');

const TITLES = {
  decorator: 'Decorator',
  cycle: 'Own code of one lock cycle',
  node: 'Node 20 and Node 24',
  import: 'Import',
  redis: 'Redis',
  'several-keys': 'Several keys',
  'redis-scale': 'Redis, growth',
  scale: 'Redis, processes and keys',
  limits: 'Redis, limits',
  waiters: 'Redis, thousands of waiters',
  garbage: 'Redis, garbage',
  redlock: 'Redlock',
  mariadb: 'MariaDB',
  postgres: 'Postgres',
  failover: 'Failover',
  zookeeper: 'ZooKeeper',
};

const BURST = '16 callers at once on one key, until each has held it';
const LOOP = '16 waiters looping on one key in two processes';

/** The generated parts of each page, by the names of their markers. */
export function partsOfPages() {
  const groups = groupsInOrder(RESULTS);
  const rows = comparisons(groups, groupsInOrder(RESULTS_ON_NODE_24));
  return {
    [PAGE]: { conclusion: conclusion(rows), comparison: compact(comparisonTable(rows)) },
    [SCALE_PAGE]: { scale: scaleTables(groups) },
    [LAB_NOTES]: { targets: compact(targetTable(groups)), results: groups.map(section).join('\n\n') },
  };
}

export async function drawPages() {
  for (const [page, parts] of Object.entries(partsOfPages())) drawPage(page, parts);
  await drawCharts(groupsInOrder(RESULTS));
}

function groupsInOrder(folder) {
  const files = (existsSync(folder) ? readdirSync(folder) : []).filter((file) => file.endsWith('.json'));
  const names = files.map((file) => basename(file, '.json'));
  const known = Object.keys(TITLES).filter((name) => names.includes(name));
  return [...new Set([...known, ...names])].map((name) =>
    JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8')),
  );
}

function titleOf(group) {
  return TITLES[group] ?? group;
}

function comparisonTable(rows) {
  return markdownTable(
    ['what', 'this package', 'best other', '', 'ratio', '', 'Node 24', 'the other lacks'],
    rows.map(({ label, ours, best, other, lacks, newer, ...judged }) => [
      label,
      number(ours),
      number(best),
      other,
      ...judgedWords(judged),
      newer ? `${judgedWords(newer).join(' ')}${newer.other === other ? '' : `, ${newer.other}`}` : '–',
      lacks.join(', '),
    ]),
    'text',
  );
}

function judgedWords({ ratio, result }) {
  return [ratio ? times(ratio) : '–', result === 'behind' ? '**behind**' : result];
}

/** Draws the charts shown in docs/benchmarks.md. */
async function drawCharts(groups) {
  ensureInstalled(join(root, 'scripts/charts'));
  const { dotChart, ratioChart } = await import('./charts.mjs');
  const { tables = [] } = groups.find(({ group }) => group === 'redis') ?? {};
  const find = (what) => tables.find((table) => table.what === what);
  const [burst, speed, longest] = [BURST, `${LOOP}: speed`, `${LOOP}: longest wait`].map(find);
  const charts = [
    [
      'comparisons',
      await ratioChart(comparisons(groups), {
        title: 'Compared with the best other library',
        subtitle: 'right of the line: this package is better',
      }),
    ],
    burst && [
      'burst',
      await dotChart([panelOf(burst)], {
        title: burst.what,
        subtitle: 'Redis. Left is better. Open: callers gave up',
      }),
    ],
    speed &&
      longest && [
        'loop',
        await dotChart([panelOf(longest), panelOf(speed)], {
          title: LOOP,
          subtitle: 'Redis. The longest wait: left is better. The speed: right is better',
        }),
      ],
  ].filter(Boolean);
  rmSync(PICTURES, { recursive: true, force: true });
  mkdirSync(PICTURES, { recursive: true });
  for (const [name, picture] of charts) writeFileSync(join(PICTURES, `${name}.svg`), picture);
}

/** The libraries from best to worst. */
function panelOf(table) {
  const sign = table.better === 'more' ? -1 : 1;
  const lines = summary(table)
    .filter(({ name }) => name !== BASELINE)
    .toSorted((a, b) => sign * (a.median - b.median))
    .map(({ name, median: middle, low, high, note }) => {
      const gaveUp = isGivenUp(note) ? note : '';
      const text = number(middle) + (gaveUp && ` (${gaveUp})`);
      return { name, median: middle, low, high, text, isOurs: name === table.ours, note: gaveUp };
    });
  const [, detail] = table.what.split(': ');
  return { unit: detail ? `${detail}, ${table.unit}` : table.unit, lines };
}

/** The tables on how far one Redis scales. */
function scaleTables(groups) {
  const { tables = [] } = groups.find(({ group }) => group === 'scale') ?? {};
  const medians = ({ rounds, ours }) => rounds[ours].map((values) => median(values));
  // One table for all measurements along the same numbers, which are its columns.
  const heads = new Set(tables.map(({ along }) => `${along.name}: ${along.points}`));
  const parts = Array.from(heads, (head) => {
    const group = tables.filter(({ along }) => `${along.name}: ${along.points}` === head);
    const [{ along, what }] = group;
    const [subject] = what.split(': ');
    const rows = group.map((table) => {
      const [, detail] = table.what.split(': ');
      return [`${detail ? `${detail}, ` : ''}${table.unit}`, ...medians(table).map(number)];
    });
    const points = along.points.map((point) => point.toLocaleString('en'));
    return compact(markdownTable([`${subject}: ${along.name}`, ...points], rows));
  });
  return parts.join('\n\n');
}

/** All targets, met or not. */
function targetTable(groups) {
  const rows = groups.flatMap(({ group, tables }) =>
    tables
      .map((table) => ({ table, judged: verdict(table) }))
      .filter(({ judged }) => judged)
      .map(({ table, judged: { bar, measured, word } }) => {
        return [`${titleOf(group)}: ${lowered(table.what)}`, bar, measured, word === 'met' ? word : `**${word}**`];
      }),
  );
  return markdownTable(['what', 'target', 'measured (quartiles)', 'result'], rows, 'text');
}

/** A group: how it was measured, one table with all medians, and one for each quantity that grows. */
function section({ group, date, commit, machine, versions, settings, tables }) {
  const versionList = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return [
    `### ${titleOf(group)}`,
    `${settings}. ${versionList.join(', ')}. Measured ${date.slice(0, 16).replace('T', ' ')} UTC, commit ${commit}, on ${machine.processor}, ` +
      `${machine.memory}, ${machine.system}${machine.pinned ? '' : ', **not pinned**'}. Other programs kept ${machine.busyBefore} % of the processors ` +
      `busy just before; load average ${machine.loadBefore} before, ${machine.loadAfter} after.`,
    compact(medianTable(tables.filter(({ along }) => !along))),
    ...tables.filter(({ along }) => along).map((table) => `${table.what}:\n\n${compact(growingTable(table))}`),
  ].join('\n\n');
}

/** One row for each measurement, with each candidate's median. */
function medianTable(tables) {
  const candidates = [...new Set(tables.flatMap(({ rounds }) => Object.keys(rounds)))];
  const notes = [];
  const cell = (table, name) => {
    if (!table.rounds[name]) return '';
    const note = table.notes?.[name];
    if (note) notes.push(note);
    return number(median(table.rounds[name])) + (note ? ` (${notes.length})` : '');
  };
  const rows = tables.map((table) => [
    `${table.what}, ${table.unit}${lacksPeers(table) ? ' (no other library was measured)' : ''}`,
    ...candidates.map((name) => cell(table, name)),
  ]);
  const marked = notes.map((note, index) => `(${index + 1}) ${note}`);
  return markdownTable(['', ...candidates], rows) + (marked.length > 0 ? `\n\n${marked.join('; ')}.` : '');
}

function growingTable({ along, rounds, unit }) {
  return markdownTable(
    [`${unit}, ${along.name}:`, ...along.points.map((point) => point.toLocaleString('en'))],
    Object.entries(rounds).map(([name, lists]) => [name, ...lists.map((values) => number(median(values)))]),
  );
}

function lowered(title) {
  return title.charAt(0).toLowerCase() + title.slice(1);
}

if (import.meta.filename === process.argv[1]) await drawPages();
