import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { LuaEngine } from './lua-engine.js';
import type { Plan } from './plan.js';
import { planOf } from './seeds.js';
import { type Outcome, simulate } from './world.js';

const USAGE = `usage: npm run simulate -- [options]

  --hours 8       simulates this many hours. Default: one seed
  --seconds 20    simulates for this many seconds of CPU time
  --seed 7        starts with this seed. Default: random
  --seeds 100     simulates this many seeds
  --theme name    simulates only this theme from test/world/themes.ts, such as failovers
  --cluster       simulates only a Redis Cluster
  --redlock       simulates only the independent nodes of Redlock
  --failover      simulates only a failover provider
  --plan file     runs the plans in this file, such as test/world/corpus.json, instead of seeds
  --tell          prints everything that happens
  --stop          stops at the first seed with a violation, and does not shrink it
  --hash          prints a hash of everything that happened, for each seed`;

const { values: options } = parseArgs({
  options: {
    hours: { type: 'string' },
    seconds: { type: 'string' },
    seed: { type: 'string' },
    seeds: { type: 'string' },
    theme: { type: 'string' },
    cluster: { type: 'boolean', default: false },
    redlock: { type: 'boolean', default: false },
    failover: { type: 'boolean', default: false },
    plan: { type: 'string' },
    tell: { type: 'boolean', default: false },
    stop: { type: 'boolean', default: false },
    hash: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (options.help) {
  console.log(USAGE);
  process.exit();
}

const HOUR = 3_600_000;
const engine = await LuaEngine.create();
const sums = new Map<string, number>();
let simulated = 0;
let runs = 0;
const failed: { readonly plan: Plan; readonly violations: readonly string[] }[] = [];
for (const plan of plans()) {
  const outcome = await simulate(engine, plan, options.tell);
  count(outcome);
  if (options.tell) for (const line of outcome.story) console.log(line);
  if (options.hash) console.log(`seed ${plan.seed} ${outcome.hash} ${outcome.events} events`);
  const { violations } = outcome;
  if (violations.length === 0) continue;
  failed.push({ plan, violations });
  console.log(`seed ${plan.seed}: ${violations.length} violations\n  ${violations.slice(0, 3).join('\n  ')}`);
  if (options.stop) break;
}
const [first] = failed;
if (first !== undefined && !options.stop && !options.tell) await explain(first.plan, first.violations);
const counted = [...sums].map(([name, sum]) => `${name} ${sum}`).join(', ');
console.log(
  `${runs} runs, ${failed.length} with violations, ${(simulated / HOUR).toFixed(2)} simulated hours in ${cpuSeconds().toFixed(1)} s CPU: ${counted}`,
);
process.exit(failed.length > 0 ? 1 : 0);

function* plans(): Generator<Plan> {
  if (options.plan !== undefined) {
    for (const { plan } of JSON.parse(readFileSync(options.plan, 'utf8')) as { plan: Plan }[]) yield plan;
    return;
  }
  const { hours, seconds, seeds, seed = String(Math.floor(Math.random() * 2 ** 31)) } = options;
  const isOne = hours === undefined && seconds === undefined && seeds === undefined;
  const most = isOne ? 1 : Number(seeds ?? Infinity);
  if (options.seed === undefined) console.log(`from seed ${seed}`);
  for (let next = 0; next < most; next += 1) {
    if (simulated >= Number(hours ?? Infinity) * HOUR || cpuSeconds() >= Number(seconds ?? Infinity)) return;
    const where = (['cluster', 'redlock', 'failover'] as const).find((place) => options[place]);
    yield planOf(Number(seed) + next, options.theme, where);
  }
}

function count({ outcomes, events, commands, faults, crashes, simulated: time }: Outcome): void {
  runs += 1;
  simulated += time;
  for (const [name, number] of [...Object.entries({ events, commands, faults, crashes }), ...outcomes]) {
    sums.set(name, (sums.get(name) ?? 0) + number);
  }
}

function cpuSeconds(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

/** Prints the shortest story that shows a violation, with the plan that repeats it. */
async function explain(plan: Plan, violations: readonly string[]): Promise<void> {
  const kinds = new Set(violations.map(kindOf));
  const isSame = (found: readonly string[]) => found.some((each) => kinds.has(kindOf(each)));
  const smallest = await shrink(plan, async (smaller) => isSame((await simulate(engine, smaller)).violations));
  const { story, violations: left } = await simulate(engine, smallest, true);
  const end = Number.parseFloat(left[0] ?? '0');
  console.log(`\nThe shortest story of seed ${plan.seed} (the last 80 lines, without the commands):`);
  const lines = story.filter((line) => !/^[\d.]+ #/.test(line) && Number.parseFloat(line) <= end);
  for (const line of lines.slice(-80)) console.log(`  ${line}`);
  for (const violation of left.slice(0, 3)) console.log(`  ${violation}`);
  console.log(`\nIts plan: ${JSON.stringify(smallest)}\n`);
}

/** A violation without its numbers, to tell whether a smaller plan shows the same one. */
function kindOf(violation: string): string {
  return violation.replace(/\d[\d.]*/g, '#').slice(0, 60);
}

/**
 * Shrinks a plan as long as `fails` holds for it: fewer faults, callers, and processes, and less time.
 *
 * @param most the maximum number of plans to try
 */
async function shrink(plan: Plan, fails: (plan: Plan) => Promise<boolean>, most = 150): Promise<Plan> {
  let smallest = plan;
  let tries = 0;
  const accepts = async (smaller: Plan): Promise<boolean> => {
    if (tries >= most) return false;
    tries += 1;
    if (!(await fails(smaller))) return false;
    smallest = smaller;
    return true;
  };
  for (let isSmaller = true; isSmaller && tries < most;) {
    const before = smallest;
    await accepts({ ...smallest, duration: smallest.duration / 2 });
    await removeParts(
      () => smallest.faults,
      (faults) => accepts({ ...smallest, faults }),
    );
    await removeParts(
      () => smallest.callers,
      (callers) => accepts({ ...smallest, callers }),
    );
    if (smallest.processes > 1) await accepts(withoutLastProcess(smallest));
    isSmaller = smallest !== before;
  }
  return smallest;
}

/** Tries to remove halves, then quarters, and finally single items. */
async function removeParts<T>(parts: () => readonly T[], accepts: (rest: T[]) => Promise<boolean>): Promise<void> {
  for (let size = Math.ceil(parts().length / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let from = 0; from < parts().length;) {
      const rest = [...parts()];
      rest.splice(from, size);
      if (!(await accepts(rest))) from += size;
    }
  }
}

function withoutLastProcess(plan: Plan): Plan {
  const processes = plan.processes - 1;
  const remains = ({ place }: { readonly place: number }) => place < processes;
  return { ...plan, processes, callers: plan.callers.filter(remains), faults: plan.faults.filter(remains) };
}
