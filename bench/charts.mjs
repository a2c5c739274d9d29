// Draws bench/results/*.json into docs/benchmarks.md, docs/lab-notes/benchmarks.md and docs/benchmarks/*.svg. Nobody edits the text
// between the markers of these pages.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { root } from '../scripts/ensure-installed.mjs';
import { BASELINE } from './builds.mjs';
import { compact, drawPage, markdownTable } from './markdown.mjs';
import { median } from './measure.mjs';
import { bars, growth } from './svg.mjs';
import { lacksPeers, number, summary, verdict } from './table.mjs';

const RESULTS = join(root, 'bench/results');
const PICTURES = join(root, 'docs/benchmarks');
const PAGE = join(root, 'docs/benchmarks.md');
const LAB_NOTES = join(root, 'docs/lab-notes/benchmarks.md');

const TITLES = {
  decorator: 'Decorator',
  redis: 'Redis',
  'redis-scale': 'Redis, growth',
  limits: 'Redis, limits',
  waiters: 'Redis, thousands of waiters',
  garbage: 'Redis, garbage',
  redlock: 'Redlock',
  mariadb: 'MariaDB',
  postgres: 'Postgres',
  failover: 'Failover',
  zookeeper: 'ZooKeeper',
};

/** The tables that the page compares with other libraries, and the heading of each. */
const COMPARED = [
  ['redis', 'One caller, acquire + release', 'cycles a second', 'one caller, cycles/s'],
  ['redis', '64 callers on 64 keys', 'cycles a second', '64 keys, cycles/s'],
  ['redis', '16 callers at once on one key, until each has held it', 'ms', '16 at once, ms'],
  ['redis', '16 waiters looping on one key in two processes: speed', 'acquisitions a second', 'loop, acquisitions/s'],
  ['redis', '16 waiters looping on one key in two processes: fairness', 'fewest turns / most turns', 'loop, fairness'],
  ['redis', '16 waiters looping on one key in two processes: longest wait', 'ms', 'loop, longest wait, ms'],
  ['redis-scale', '100 idle waiters on one key in one process', 'commands a second', '100 idle waiters, commands/s'],
];

/** The tables of which the page shows the chart. */
const CHARTS = COMPARED.filter((_, index) => [1, 2, 5].includes(index));

export function drawCharts() {
  const groups = groupsInOrder();
  rmSync(PICTURES, { recursive: true, force: true });
  mkdirSync(PICTURES, { recursive: true });
  const sections = groups.map(section).join('\n\n');
  const find = ([name, what, unit]) => {
    const { tables = [] } = groups.find(({ group }) => group === name) ?? {};
    return tables.find((table) => table.what === what && table.unit === unit);
  };
  drawPage(PAGE, {
    bars: compact(barTable(groups)),
    peers: compact(peerTable(COMPARED.map((compared) => ({ heading: compared.at(-1), table: find(compared) })))),
    charts: CHARTS.filter(find)
      .map((compared) => image(compared[0], find(compared), 'benchmarks'))
      .join('\n\n'),
  });
  drawPage(LAB_NOTES, { results: sections });
}

function groupsInOrder() {
  const files = readdirSync(RESULTS).filter((file) => file.endsWith('.json'));
  const names = files.map((file) => basename(file, '.json'));
  const known = Object.keys(TITLES).filter((name) => names.includes(name));
  return [...new Set([...known, ...names])].map((name) =>
    JSON.parse(readFileSync(join(RESULTS, `${name}.json`), 'utf8')),
  );
}

function titleOf(group) {
  return TITLES[group] ?? group;
}

/** All bars, met or not. */
function barTable(groups) {
  const rows = groups.flatMap(({ group, tables }) =>
    tables
      .map((table) => ({ table, judged: verdict(table) }))
      .filter(({ judged }) => judged)
      .map(({ table, judged }) => {
        return [`${titleOf(group)}: ${lowered(table.what)}`, judged.bar, judged.measured, wordOf(judged)];
      }),
  );
  return markdownTable(['what', 'bar', 'measured (quartiles)', 'result'], rows, 'text');
}

/** One row for each library, with the medians of these tables. */
function peerTable(columns) {
  const ours = columns.find(({ table }) => table)?.table.ours;
  const measured = new Set(columns.flatMap(({ table }) => Object.keys(table?.rounds ?? {})));
  const names = [...measured].filter((name) => name !== BASELINE);
  const lines = new Map(
    columns.map(({ heading, table }) => [heading, new Map(table && summary(table).map((line) => [line.name, line]))]),
  );
  const cell = (name, heading) => {
    const line = lines.get(heading).get(name);
    return line ? `${number(line.median)}${line.note ? ' \\*' : ''}` : '';
  };
  const headings = columns.map(({ heading }) => heading);
  return markdownTable(
    ['library', ...headings],
    names.map((name) => [name === ours ? `**${name}**` : name, ...headings.map((heading) => cell(name, heading))]),
  );
}

function section({ group, date, commit, machine, versions, settings, tables }) {
  return [
    `## ${titleOf(group)}`,
    `${settings}.`,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', ') + '.',
    `Measured ${date.slice(0, 16).replace('T', ' ')} UTC, commit ${commit}, on ${machine.processor}, ${machine.memory}, ${machine.system}` +
      `${machine.pinned ? '' : ', **not pinned**'}. Other programs kept ${machine.busyBefore} % of the processors busy just before; ` +
      `load average ${machine.loadBefore} before, ${machine.loadAfter} after.`,
    ...tables.map((table) => (table.along ? growingTable(group, table) : flatTable(group, table))),
  ].join('\n\n');
}

function flatTable(group, table) {
  const lines = summary(table);
  const judged = verdict(table);
  const hasRatio = lines.some(({ ratio }) => ratio !== undefined);
  const hasSpread = lines.some(({ rounds }) => rounds > 1);
  const hasNotes = lines.some(({ note }) => note);
  const columns = [
    ['', ({ name }) => (name === table.ours ? `**${name}**` : name)],
    [table.unit, (line) => number(line.median)],
    hasSpread && ['quartiles', ({ low, high, rounds }) => (rounds > 1 ? `${number(low)} – ${number(high)}` : '')],
    hasRatio && [`× ${table.base}`, ({ ratio }) => ratio?.toFixed(2) ?? ''],
    hasNotes && ['', ({ note }) => note],
  ].filter(Boolean);
  // A chart with one or two bars shows nothing.
  if (lines.length >= 3)
    draw(group, table, bars({ ...frame(table), lines: marked(lines, table), limit: limitOf(table) }));
  return [
    `### ${table.what}`,
    lines.length >= 3 ? image(group, table, '../benchmarks') : '',
    markdownTable(
      columns.map(([head]) => head),
      lines.map((line) => columns.map(([, cell]) => cell(line))),
    ),
    judged ? `Bar: ${judged.bar}. Measured ${judged.measured}: ${wordOf(judged)}.` : '',
    lacksPeers(table) ? 'No ratio and no bar: no other library was measured.' : '',
  ]
    .filter(Boolean)
    .join('\n\n');
}

function growingTable(group, table) {
  const { along, rounds, ours } = table;
  const medians = Object.entries(rounds)
    .map(([name, lists]) => ({ name, values: lists.map(median) }))
    .sort((a, b) => (b.name === ours) - (a.name === ours));
  draw(group, table, growth({ ...frame(table), along: along.name, points: along.points, series: medians }));
  return [
    `### ${table.what}`,
    image(group, table, '../benchmarks'),
    markdownTable(
      [`${table.unit}, ${along.name}:`, ...along.points.map((point) => point.toLocaleString('en'))],
      medians.map(({ name, values }) => [name === ours ? `**${name}**` : name, ...values.map(number)]),
    ),
  ].join('\n\n');
}

function wordOf({ word }) {
  return word === 'met' ? word : `**${word}**`;
}

function frame({ what, unit, better }) {
  return { title: what, unit: `${unit}, ${better} is better` };
}

function marked(lines, { ours, base, better }) {
  const sign = better === 'more' ? -1 : 1;
  const rank = ({ name }) => (name === base ? 0 : 1);
  return lines
    .toSorted((a, b) => rank(a) - rank(b) || sign * (a.median - b.median))
    .map((line) => ({ ...line, isOurs: line.name === ours }));
}

/** The value of the bar on the axis. A bar relative to the best other library is shown in the text only. */
function limitOf({ bar, rounds, base }) {
  const limit = bar?.atLeast ?? bar?.atMost;
  if (bar === undefined || bar.of === 'best') return undefined;
  return bar.of === 'base' ? limit * median(rounds[base]) : limit;
}

function draw(group, table, picture) {
  writeFileSync(join(PICTURES, pictureOf(group, table)), picture);
}

function image(group, table, folder) {
  return `![${table.what}, ${table.unit}](${folder}/${pictureOf(group, table)})`;
}

function pictureOf(group, { what, unit }) {
  return `${group}-${slug(what)}-${slug(unit)}.svg`;
}

function slug(words) {
  return words
    .toLowerCase()
    .replaceAll('µ', 'u')
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '');
}

function lowered(title) {
  return title.charAt(0).toLowerCase() + title.slice(1);
}

if (import.meta.filename === process.argv[1]) drawCharts();
