// The measurements of a group: printed as they arrive, and saved as bench/results/<group>.json if the group ends
// without an error.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { arch, cpus, loadavg, platform, release, totalmem } from 'node:os';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { commit } from '../scripts/commit.mjs';
import { codeOf, hashOf } from '../scripts/measured-code.mjs';
import { BASELINE, baselineVersion, OURS } from './builds.mjs';
import { isQuick } from './measure.mjs';
import { lacksPeers, number, summary, verdict } from './table.mjs';

const group = basename(process.argv[1], '.mjs');
const tables = [];
const facts = {};
const startedAt = new Date();
const machine = {
  processor: `${cpus().length} × ${cpus()[0].model}, ${arch()}`,
  memory: `${Math.round(totalmem() / 2 ** 30)} GiB`,
  system: `${platform()} ${release()}`,
  pinned: process.env.BENCH_PINNED === '1',
  // Load caused by other programs.
  busyBefore: await busyShare(1_000),
  loadBefore: loadavg()[0],
};

process.on('exit', (code) => {
  if (code !== 0 || isQuick || tables.length === 0) return;
  const folder = new URL(`results/${process.env.BENCH_NODE ? `node-${process.env.BENCH_NODE}/` : ''}`, import.meta.url);
  mkdirSync(folder, { recursive: true });
  const file = new URL(`${group}.json`, folder);
  const kept = {
    group,
    date: startedAt.toISOString(),
    // The results of other groups don't affect it.
    commit: commit('lib', 'bench', ':!bench/results'),
    measured: hashOf(codeOf(group)),
    machine: { ...machine, loadAfter: loadavg()[0] },
    versions: { node: process.versions.node, ...facts.versions },
    settings: facts.settings ?? '',
    tables,
  };
  // Each list of values is on one line, to keep the diff of two runs readable.
  const text = JSON.stringify(kept, shortened, 2).replaceAll(/\[[\s\d.,e-]+\]/g, (list) =>
    list.replaceAll(/\s+/g, ' '),
  );
  writeFileSync(file, `${text}\n`);
});

/** The versions of what is measured, by name, and a description of the setup. */
export function about({ versions, settings }) {
  Object.assign(facts, { versions: { ...versions, ...baselineVersion }, settings });
  console.log(
    `\n=== ${group}: ${Object.entries({ node: process.versions.node, ...facts.versions })
      .map(([name, version]) => `${name} ${version}`)
      .join(', ')}`,
  );
  console.log(settings);
  console.log(
    `${machine.busyBefore} % of the processors were busy before the start${machine.pinned ? '' : ', NOT PINNED'}`,
  );
}

/** Saves a table (see table.mjs) and prints it. */
export function report(table) {
  tables.push(table);
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
  if (judged) console.log(`  ${judged.word.toUpperCase()}: ${judged.measured}. The bar is ${judged.bar}.`);
  if (lacksPeers(table)) console.log('  no ratio and no bar, because no other library was measured');
}

/**
 * Reports the part of a table that this build and the baseline fill, with the bar of their ratio. Does nothing if no
 * baseline is measured.
 */
export function reportAgainstBaseline({ what, unit, better, rounds }, bar) {
  if (!rounds[BASELINE]) return;
  report({
    what: `${what}, beside the baseline`,
    unit,
    better,
    ours: OURS,
    base: BASELINE,
    ...(bar && { bar: { ...bar, of: 'base' } }),
    rounds: { [BASELINE]: rounds[BASELINE], [OURS]: rounds[OURS] },
  });
}

/** The version of a package installed in the repository or in another folder. */
export function versionOf(name, folder = '..') {
  return JSON.parse(readFileSync(new URL(`${folder}/node_modules/${name}/package.json`, import.meta.url))).version;
}

function line(name, ...columns) {
  console.log(`  ${name.padEnd(26)} ${columns.map((column) => column.padStart(9)).join('  ')}`.trimEnd());
}

/** The share of all processors that was busy, in percent. */
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

// More than four digits would suggest a precision that the measurements don't have.
function shortened(_, value) {
  return typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value;
}
