import { setTimeout as sleep } from 'node:timers/promises';
import { openArena } from './arena.mjs';
import { nemeses } from './nemeses/index.mjs';
import { seededRandom } from './random.mjs';
import { isAsExpected } from './report.mjs';

const OPENING = 500;
const ROUND = 20_000;

/** Runs one subject under its faults, in rounds that end in quiet, for about `milliseconds`; and judges what happened. */
export async function campaign(name, { seed, milliseconds, library, only }) {
  const arena = await openArena(name, { seed, library, clients: 5, think: 15 });
  const { subject, fleet } = arena;
  const random = seededRandom(`${seed}/${name}`);
  const faults = (only ?? subject.nemeses).map((fault) => nemeses.get(fault));
  let cycle = [];
  try {
    const until = performance.now() + milliseconds;
    while (performance.now() < until) {
      fleet.run();
      await sleep(OPENING);
      const roundEnd = Math.min(performance.now() + ROUND, until);
      while (performance.now() < roundEnd) {
        // Each fault once, in an order of the seed's, before any comes again.
        if (cycle.length === 0) cycle = random.shuffled(faults);
        await strike(cycle.pop(), arena, random);
        await sleep(random.between(200, 700));
      }
      await arena.quiesce();
    }
  } finally {
    await arena.close();
  }
  const verdict = await arena.verdict();
  if (isAsExpected({ subject, verdict })) await arena.forget();
  return { subject, verdict, history: verdict.history };
}

async function strike(nemesis, { subject, fleet, backend, resource }, random) {
  const victim = random.pick(fleet.members);
  const duration = random.between(100, Math.round(subject.lifetime * 1.8));
  const context = { fleet, backend, victim, server: random.pick(backend.servers), random, duration };
  if (nemesis.possible?.(context) === false) return;
  const { name, of, settle } = nemesis;
  await resource.tell({ event: 'begin', nemesis: name, of, target: victim.name, duration, settle });
  await nemesis.begin(context);
  if (nemesis.end) await sleep(duration);
  await nemesis.end?.(context);
  await resource.tell({ event: 'end', nemesis: name });
  await sleep(settle ?? 0);
}
