import { setTimeout as sleep } from 'node:timers/promises';
import { startEnvironment } from './environment.mjs';
import { faults } from './faults/index.mjs';
import { seededRandom } from './random.mjs';
import { isAsExpected } from './report.mjs';

const CALM_START = 500;
const ROUND = 20_000;

/**
 * Runs one subject under its faults for about `milliseconds`, in rounds that end in a quiet phase, and judges its
 * history.
 */
export async function runWithFaults(name, { seed, milliseconds, library, only }) {
  const environment = await startEnvironment(name, { seed, library, clients: 5, think: 15 });
  const { subject, fleet } = environment;
  const random = seededRandom(`${seed}/${name}`);
  const chosen = (only ?? subject.faults).map((fault) => faults.get(fault));
  let cycle = [];
  try {
    const until = performance.now() + milliseconds;
    while (performance.now() < until) {
      fleet.run();
      await sleep(CALM_START);
      const roundEnd = Math.min(performance.now() + ROUND, until);
      while (performance.now() < roundEnd) {
        // Inject each fault once, in an order determined by the seed, before repeating any.
        if (cycle.length === 0) cycle = random.shuffled(chosen);
        await inject(cycle.pop(), environment, random);
        await sleep(random.between(...(subject.calm ?? [200, 700])));
      }
      await environment.quiesce();
    }
  } finally {
    await environment.close();
  }
  const verdict = await environment.verdict();
  if (isAsExpected({ subject, verdict })) await environment.deleteHistory();
  return { name, subject, verdict, history: verdict.history };
}

async function inject(fault, { subject, fleet, backend, resource }, random) {
  const worker = random.pick(fleet.members);
  const duration = random.between(100, Math.round(subject.lifetime * 1.8));
  const server = random.pick(backend.servers);
  const context = { subject, fleet, backend, resource, worker, server, random, duration };
  if (fault.possible?.(context) === false) return;
  const { name, of, settle } = fault;
  await fault.prepare?.(context);
  await resource.record({ event: 'begin', fault: name, of, target: worker.name, duration, settle });
  await fault.begin(context);
  if (fault.end) await sleep(duration);
  await fault.end?.(context);
  await resource.record({ event: 'end', fault: name });
  await sleep(settle ?? 0);
}
