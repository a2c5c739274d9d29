// What a row has measured: printed as it comes, and kept as bench/results/<row>.json when the row ends well.
import { readFileSync, writeFileSync } from 'node:fs';
import { arch, cpus, loadavg, platform, release, totalmem } from 'node:os';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { commit } from '../scripts/commit.mjs';
import { isQuick } from './measure.mjs';
import { isWithoutRivals, number, summary, verdict } from './table.mjs';

const row = basename(process.argv[1], '.mjs');
const tables = [];
const facts = {};
const startedAt = new Date();
const machine = {
  processor: `${cpus().length} × ${cpus()[0].model}, ${arch()}`,
  memory: `${Math.round(totalmem() / 2 ** 30)} GiB`,
  system: `${platform()} ${release()}`,
  pinned: process.env.BENCH_PINNED === '1',
  // Whatever else runs on the machine while we do.
  busyBefore: await busyShare(1_000),
  loadBefore: loadavg()[0],
};

process.on('exit', (code) => {
  if (code !== 0 || isQuick || tables.length === 0) return;
  const file = new URL(`results/${row}.json`, import.meta.url);
  const kept = {
    row,
    date: startedAt.toISOString(),
    // The results of other rows do not change it.
    commit: commit('lib', 'bench', ':!bench/results'),
    machine: { ...machine, loadAfter: loadavg()[0] },
    versions: { node: process.versions.node, ...facts.versions },
    settings: facts.settings ?? '',
    tables,
  };
  // A list of values on one line, for those who read the difference between two runs.
  const text = JSON.stringify(kept, shortened, 2).replaceAll(/\[[\s\d.,e-]+\]/g, (list) =>
    list.replaceAll(/\s+/g, ' '),
  );
  writeFileSync(file, `${text}\n`);
});

/** The versions of what is measured, by name, and how it is set up, in words. */
export function about({ versions, settings }) {
  Object.assign(facts, { versions, settings });
  console.log(
    `\n=== ${row}: ${Object.entries({ node: process.versions.node, ...versions })
      .map(([name, version]) => `${name} ${version}`)
      .join(', ')}`,
  );
  console.log(settings);
  console.log(`${machine.busyBefore} % of the processors busy before the start${machine.pinned ? '' : ', NOT PINNED'}`);
}

/** Keeps a table: see table.mjs. For rows that print by themselves. */
export function record(table) {
  tables.push(table);
}

/** Keeps a table and prints it. */
export function report(table) {
  record(table);
  console.log(`\n${table.what}, ${table.unit}`);
  if (table.along) {
    line(table.along.name, ...table.along.points.map((point) => point.toLocaleString('en')));
    for (const [name, lists] of Object.entries(table.rounds)) {
      line(
        name,
        ...lists.map((values) => (values.length ? number(summary({ rounds: { name: values } })[0].median) : '–')),
      );
    }
    return;
  }
  for (const { name, median, low, high, ratio, note } of summary(table)) {
    const ratioText = ratio === undefined ? '' : `${ratio.toFixed(2)} × ${table.base}`;
    line(name, number(median), low === high ? '' : `${number(low)} … ${number(high)}`, ratioText, note);
  }
  const judged = verdict(table);
  if (judged) console.log(`  ${judged.word.toUpperCase()}: ${judged.measured}, the bar is ${judged.bar}`);
  if (isWithoutRivals(table)) console.log('  no ratio and no bar: there is none of the others to compare with');
}

/** The version of an installed package: of the repository's own, or of a folder's. */
export function versionOf(name, folder = '..') {
  return JSON.parse(readFileSync(new URL(`${folder}/node_modules/${name}/package.json`, import.meta.url))).version;
}

function line(name, ...columns) {
  console.log(`  ${name.padEnd(26)} ${columns.map((column) => column.padStart(9)).join('  ')}`.trimEnd());
}

/** Which share of all processors was busy, in percent. */
async function busyShare(milliseconds) {
  const before = times();
  await sleep(milliseconds);
  const after = times();
  return Math.round(100 - (100 * (after.idle - before.idle)) / (after.all - before.all));
}

function times() {
  const all = cpus().map((processor) => processor.times);
  const sum = (of) => all.reduce((total, each) => total + of(each), 0);
  return { idle: sum(({ idle }) => idle), all: sum((each) => Object.values(each).reduce((a, b) => a + b)) };
}

// Four digits are more than the spread allows.
function shortened(_, value) {
  return typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value;
}
