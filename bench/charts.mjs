// Draws bench/results/*.json into docs/benchmarks.md and docs/benchmarks/*.svg. Nothing there is written by hand between the markers.
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../scripts/ensure-installed.mjs';
import { median } from './measure.mjs';
import { bars, growth } from './svg.mjs';
import { isWithoutRivals, number, summary, verdict } from './table.mjs';

const results = join(root, 'bench/results');
const pictures = join(root, 'docs/benchmarks');
const page = join(root, 'docs/benchmarks.md');

const TITLES = {
  decorator: 'A decorated call',
  redis: 'Redis, one server',
  'redis-scale': 'Redis: what grows',
  redlock: 'Redlock, several servers',
  sql: 'MariaDB',
  failover: 'Fail-over',
  zookeeper: 'ZooKeeper',
};

export function drawCharts() {
  const rows = Object.keys(TITLES)
    .concat(files().filter((row) => !(row in TITLES)))
    .filter((row) => files().includes(row))
    .map((row) => JSON.parse(readFileSync(join(results, `${row}.json`), 'utf8')));
  rmSync(pictures, { recursive: true, force: true });
  mkdirSync(pictures, { recursive: true });
  replace('bars', barsOf(rows));
  replace('results', rows.map(section).join('\n\n'));
}

function files() {
  return readdirSync(results)
    .filter((file) => file.endsWith('.json'))
    .map((file) => file.replace('.json', ''));
}

function barsOf(rows) {
  const lines = rows.flatMap(({ row, tables }) =>
    tables.map((table) => ({ row, table, judged: verdict(table) })).filter(({ judged }) => judged),
  );
  return [
    '| what | bar | measured (quartiles) | |',
    '|---|---|---|---|',
    ...lines.map(
      ({ row, table, judged }) =>
        `| ${TITLES[row] ?? row}: ${lowered(table.what)} | ${judged.bar} | ${judged.measured} | ${judgement(judged)} |`,
    ),
  ].join('\n');
}

function section({ row, date, commit, machine, versions, settings, tables }) {
  return [
    `## ${TITLES[row] ?? row}`,
    `${settings}.`,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(', ') + '.',
    `Measured ${date.slice(0, 16).replace('T', ' ')} UTC, commit ${commit}, on ${machine.processor}, ${machine.memory}, ${machine.system}` +
      `${machine.pinned ? '' : ', **not pinned**'}. Other programs kept ${machine.busyBefore} % of the processors busy just before; ` +
      `load average ${machine.loadBefore} before, ${machine.loadAfter} after.`,
    ...tables.map((table) => (table.along ? growing(row, table) : flat(row, table))),
  ].join('\n\n');
}

function flat(row, table) {
  const lines = summary(table);
  const judged = verdict(table);
  // A chart of one bar shows nothing.
  const picture =
    lines.length < 3
      ? ''
      : draw(row, table, bars({ ...frame(table), lines: marked(lines, table), limit: limitOf(table) }));
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
  return [
    `### ${table.what}`,
    picture,
    markdown(
      columns.map(([head]) => head),
      lines.map((line) => columns.map(([, cell]) => cell(line))),
    ),
    judged ? `Bar: ${judged.bar}. Measured ${judged.measured}: ${judgement(judged)}.` : '',
    isWithoutRivals(table) ? 'No ratio and no bar: none of the others was there to compare with.' : '',
  ]
    .filter(Boolean)
    .join('\n\n');
}

function growing(row, table) {
  const { along, rounds, ours } = table;
  const medians = Object.entries(rounds)
    .map(([name, lists]) => ({ name, values: lists.map(median) }))
    .sort((a, b) => (b.name === ours) - (a.name === ours));
  return [
    `### ${table.what}`,
    draw(row, table, growth({ ...frame(table), along: along.name, points: along.points, series: medians })),
    markdown(
      [`${table.unit}, ${along.name}:`, ...along.points.map((point) => point.toLocaleString('en'))],
      medians.map(({ name, values }) => [name === ours ? `**${name}**` : name, ...values.map(number)]),
    ),
  ].join('\n\n');
}

function judgement({ word }) {
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

/** Where the bar stands on the axis; one against another candidate is told by the words alone. */
function limitOf({ bar, rounds, base }) {
  const limit = bar?.atLeast ?? bar?.atMost;
  if (bar === undefined || bar.of === 'best') return undefined;
  return bar.of === 'base' ? limit * median(rounds[base]) : limit;
}

function draw(row, table, picture) {
  const name = `${row}-${slug(table.what)}-${slug(table.unit)}.svg`;
  writeFileSync(join(pictures, name), picture);
  return `![${table.what}, ${table.unit}](benchmarks/${name})`;
}

function markdown(head, rows) {
  const cells = (values) => `| ${values.join(' | ')} |`;
  return [
    cells(head),
    `|${head.map((_, index) => (index === 0 ? '---' : '---:')).join('|')}|`,
    ...rows.map(cells),
  ].join('\n');
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

function replace(part, content) {
  const text = readFileSync(page, 'utf8');
  const [begin, end] = [`<!-- ${part} -->`, `<!-- /${part} -->`];
  const from = text.indexOf(begin);
  const to = text.indexOf(end);
  if (from < 0 || to < 0) throw new Error(`docs/benchmarks.md has lost its markers ${begin} and ${end}.`);
  writeFileSync(page, `${text.slice(0, from + begin.length)}\n${content}\n${text.slice(to)}`);
}

if (import.meta.filename === process.argv[1]) drawCharts();
