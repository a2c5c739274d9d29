import { parseArgs } from 'node:util';
import { LuaEngine } from './lua-engine.js';
import { planOf } from './plan.js';
import { simulate } from './world.js';

const { values: options } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '1' },
    tell: { type: 'boolean', default: false },
    stop: { type: 'boolean', default: false },
    seconds: { type: 'string' },
  },
});
const engine = await LuaEngine.create();
const first = Number(options.seed);
let simulated = 0;
const sums = new Map<string, number>();
const started = process.cpuUsage();
const cpu = () => {
  const { user, system } = process.cpuUsage(started);
  return (user + system) / 1e6;
};
const most = options.seconds === undefined ? Infinity : Number(options.seconds);
let seeds = 0;
let failed = 0;
for (let seed = first; seed < first + Number(options.seeds) && cpu() < most; seed += 1) {
  const outcome = await simulate(engine, planOf(seed), options.tell);
  seeds += 1;
  simulated += outcome.simulated;
  for (const [name, count] of outcome.outcomes) sums.set(name, (sums.get(name) ?? 0) + count);
  for (const name of ['events', 'commands', 'faults', 'crashes'] as const) {
    sums.set(name, (sums.get(name) ?? 0) + outcome[name]);
  }
  if (options.tell) for (const line of outcome.story) console.log(line);
  if (Number(options.seeds) <= 3) console.log(seed, outcome.hash, outcome.events);
  if (outcome.violations.length > 0) {
    failed += 1;
    console.log(
      `seed ${seed}: ${outcome.violations.length} violations\n  ${outcome.violations.slice(0, 3).join('\n  ')}`,
    );
    if (options.stop) break;
  }
}
console.log(
  `${seeds} seeds, ${failed} with violations, ${(simulated / 3.6e6).toFixed(2)} h, ${cpu().toFixed(1)} s CPU`,
  Object.fromEntries(sums),
);
process.exit(failed > 0 ? 1 : 0);
