import { setTimeout as sleep } from 'node:timers/promises';
import { openArena } from './arena.mjs';
import { findings } from './report.mjs';

const SAMPLES = 12;
/** Of the first third, when everything has been used once, and the last: what grows by more grows for ever. */
const FLAT = { heap: 1.3, handles: 1.2, connections: 1.2, stored: 1.2 };

/** Moderate load without faults; says what it costs to stay up, and whether it grows. */
export async function soak(name, { seed, milliseconds, library }) {
  const arena = await openArena(name, { seed, library, clients: 4, think: 40 });
  const samples = [];
  try {
    arena.fleet.run();
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
    handles: sum('handles'),
    connections: await of('connections'),
    stored: await of('stored'),
  };
}

function means(samples) {
  return Object.fromEntries(
    Object.keys(FLAT).map((what) => [what, samples.reduce((total, each) => total + each[what], 0) / samples.length]),
  );
}
