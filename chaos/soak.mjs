import { setTimeout as sleep } from 'node:timers/promises';
import { openArena } from './arena.mjs';
import { findings } from './report.mjs';

const SAMPLES = 24;
/** Until what keys leave behind for some seconds goes as fast as it comes. */
const SETTLED = 12_000;
/** Of the sections, under keys of their own: what is kept for each key shows too. */
const FRESH = 0.25;
/**
 * Of the first third, when everything has been used once, and the last: what grows by more grows for ever. What is stored contains what the
 * keys of the last seconds leave for a while, and that is as much as the machine had time for.
 */
const FLAT = { heap: 1.3, handles: 1.2, connections: 1.2, stored: 2 };
/**
 * Growth for each section after the first third: a leak is as large for the last as for the first. Heap `drifts` by so many bytes in any
 * case, with code that is compiled late, and so do keys: a run of so few sections that the limit is lost in that says nothing.
 */
const LEAKS = {
  heap: { unit: 'bytes of heap a section', scale: 2 ** 20, limit: 32, drift: 2 * 2 ** 20 },
  stored: { unit: 'stored a section', scale: 1, limit: 0.02, drift: 500 },
};

/** Moderate load without faults; says what it costs to stay up, and whether it grows. */
export async function soak(name, { seed, milliseconds, library }) {
  const arena = await openArena(name, { seed, library, clients: 4, think: 40, fresh: FRESH });
  const samples = [];
  try {
    arena.fleet.run();
    await sleep(SETTLED);
    for (let sample = 0; sample < SAMPLES; sample += 1) {
      await sleep(milliseconds / SAMPLES);
      samples.push(await look(arena));
    }
    await arena.quiesce();
  } finally {
    await arena.close();
  }
  const verdict = await arena.verdict();
  const third = SAMPLES / 3;
  const [early, late] = [samples.slice(0, third), samples.slice(-third)].map(means);
  console.log(`### ${arena.subject.title}, ${verdict.counts.sections} sections in ${milliseconds / 60_000} min\n`);
  console.log('| | first third | last third | |\n| --- | --: | --: | --- |');
  let flat = verdict.violations.length === 0;
  for (const [what, limit] of Object.entries(FLAT)) {
    const grows = late[what] > early[what] * limit + 1;
    if (grows) flat = false;
    console.log(`| ${what} | ${early[what].toFixed(1)} | ${late[what].toFixed(1)} | ${grows ? 'GROWS' : 'flat'} |`);
  }
  for (const [what, { unit, scale, limit, drift }] of Object.entries(LEAKS)) {
    const growth = slope(samples.slice(third), what) * scale;
    const isLong = (samples.at(-1).sections - samples[third].sections) * limit > drift;
    if (isLong && growth > limit) flat = false;
    const word = !isLong ? 'too few sections to say' : growth > limit ? 'GROWS' : 'flat';
    console.log(`| ${unit} | | ${growth.toFixed(3)} | ${word} |`);
  }
  for (const finding of findings({ verdict })) console.log(`- ${finding}`);
  if (flat) await arena.forget();
  else console.log(`\nThe history is kept: ${verdict.history}`);
  console.log();
  return flat;
}

async function look({ fleet, backend }) {
  const usage = await fleet.usage();
  const sum = (field) => usage.reduce((total, each) => total + each[field], 0);
  const of = (question) =>
    Promise.all(backend.servers.map((server) => server[question]?.() ?? 0)).then((all) =>
      all.reduce((a, b) => a + b, 0),
    );
  return {
    heap: sum('heapUsed') / 2 ** 20,
    sections: sum('sections'),
    handles: sum('handles'),
    connections: await of('connections'),
    stored: await of('stored'),
  };
}

/** By how much this grows with each section: least squares. */
function slope(samples, what) {
  const mean = (value) => samples.reduce((total, each) => total + value(each), 0) / samples.length;
  const [sections, level] = [mean((each) => each.sections), mean((each) => each[what])];
  const covariance = mean((each) => (each.sections - sections) * (each[what] - level));
  return covariance / mean((each) => (each.sections - sections) ** 2);
}

function means(samples) {
  return Object.fromEntries(
    Object.keys(FLAT).map((what) => [what, samples.reduce((total, each) => total + each[what], 0) / samples.length]),
  );
}
