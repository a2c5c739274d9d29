import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Fleet } from './fleet/fleet.mjs';
import { judge } from './judge/read-history.mjs';
import { connectToResource } from './judge/resource-client.mjs';
import { nemeses } from './nemeses/index.mjs';
import { seededRandom } from './random.mjs';
import { subjects } from './subjects/index.mjs';

const KEYS = ['a', 'b', 'c'];
const OPENING = 700;
// A round ends with a drain, in which a lost wake-up shows: nobody asks any more, so nobody helps the one that was forgotten.
const ROUND = 20_000;
const STOPPED_WITHIN = 10_000;

/** Runs one subject under its faults for about `milliseconds`, and judges what happened. The history is kept if it is guilty. */
export async function campaign(
  subjectName,
  { seed, milliseconds, library, only, workers = 3, clients = 5, think = 15 },
) {
  const subject = subjects[subjectName];
  const random = seededRandom(`${seed}/${subjectName}`);
  const folder = await mkdtemp(join(tmpdir(), 'lock-chaos-'));
  const history = join(folder, `${subjectName}-${seed}.jsonl`);
  const path = join(folder, 'resource.sock');
  const judgeProcess = fork(join(import.meta.dirname, 'judge/resource.mjs'), [path, history]);
  await once(judgeProcess, 'message');
  const resource = await connectToResource(path);
  const find = (rule, what) => resource.tell({ event: 'finding', rule, what });

  const backend = await subject.startBackend();
  const settings = { subject: subjectName, resource: path, library, seed, keys: KEYS, clients, think };
  const fleet = new Fleet(settings, (what) => void find('unexpected', what));
  try {
    await fleet.start(
      subject.workers ?? workers,
      backend.servers.map(({ port }) => port),
    );
    const faults = (only ?? subject.nemeses).map((name) => nemeses.get(name));
    let cycle = [];
    const until = performance.now() + milliseconds;
    while (performance.now() < until) {
      fleet.run();
      await sleep(OPENING);
      const roundEnd = Math.min(performance.now() + ROUND, until);
      while (performance.now() < roundEnd) {
        if (cycle.length === 0) cycle = random.shuffled(faults);
        await strike(cycle.pop(), { fleet, backend, resource, random, lifetime: subject.lifetime });
        await sleep(random.between(200, 700));
      }
      for (const { name, pending } of await fleet.drain(subject.recovery)) {
        if (pending === undefined) await find('stuck', `clients of ${name} have not come to their end`);
        else if (pending > 0) await find('leak', `${name} believes to hold or to await ${pending} locks`);
      }
      for (const what of await leftovers(backend, subject)) await find('leak', what);
    }
    for (const name of await fleet.stop(STOPPED_WITHIN)) await find('leak', `${name} does not end by itself`);
  } finally {
    await fleet.stop(0);
    await backend.stop();
  }
  resource.close();
  judgeProcess.send('end');
  await once(judgeProcess, 'exit');

  const verdict = await judge(history, subject);
  if (verdict.violations.length === 0 || subject.control) await rm(folder, { recursive: true });
  return { subject, name: subjectName, seed, verdict, history };
}

async function strike(nemesis, { fleet, backend, resource, random, lifetime }) {
  const victim = random.pick(fleet.members);
  const duration = random.between(100, Math.round(lifetime * 1.8));
  const context = { fleet, backend, victim, server: random.pick(backend.servers), random, duration };
  if (nemesis.possible?.(context) === false) return;
  await resource.tell({ event: 'begin', nemesis: nemesis.name, target: victim.name, duration });
  await nemesis.begin(context);
  if (nemesis.end) await sleep(duration);
  await nemesis.end?.(context);
  await resource.tell({ event: 'end', nemesis: nemesis.name });
  await sleep(nemesis.settle ?? 0);
}

/** What is still there when all leases are over. */
async function leftovers(backend, subject) {
  let left = await backend.leftovers();
  for (
    const until = performance.now() + subject.recovery;
    left.length > 0 && performance.now() < until;
    await sleep(100)
  ) {
    left = await backend.leftovers();
  }
  return left;
}
