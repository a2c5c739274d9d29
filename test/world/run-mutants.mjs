import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { bundleWorld } from './bundle.mjs';
import { MUTANTS } from './mutants.mjs';

const USAGE = `usage: npm run mutants -- [options]

  --only id,id    only these
  --search        with no seed that is known to find the fault
  --seconds 60    searches for so many seconds of CPU time`;

const { values: options } = parseArgs({
  options: {
    only: { type: 'string' },
    search: { type: 'boolean', default: false },
    seconds: { type: 'string', default: '60' },
    help: { type: 'boolean', default: false },
  },
});
if (options.help) {
  console.log(USAGE);
  process.exit();
}

const chosen = options.only?.split(',') ?? MUTANTS.map(({ id }) => id);
const sound = await bundleWorld(`sound-${process.pid}`);
const problems = [];
let found = 0;
let rest = 0;
try {
  for (const mutant of MUTANTS.filter(({ id }) => chosen.includes(id))) await judge(mutant);
} finally {
  rmSync(sound);
}
for (const problem of problems) console.log(problem);
console.log(`${found} faults found, ${problems.length} not found, ${rest} left to specs`);
process.exit(problems.length === 0 ? 0 : 1);

async function judge(mutant) {
  // Also of one that is left to a spec: a patch that does not apply any more is a fault of the list.
  const bundle = await bundleWorld(`mutant-${process.pid}`, [mutant]);
  try {
    if (mutant.reason !== undefined && options.only === undefined) {
      rest += 1;
      console.log(`${mutant.id}: left to ${mutant.killedBy ?? 'nothing'}, because ${mutant.reason}`);
      return;
    }
    const known = options.search || mutant.seed === undefined ? undefined : search(bundle, mutant.seed, 1);
    const result = known ?? search(bundle, 1, Number.MAX_SAFE_INTEGER);
    if (result === undefined) problems.push(`${mutant.id} was not found in ${options.seconds} s: ${mutant.breaks}`);
    else if (search(sound, result.seed, 1)) problems.push(`seed ${result.seed} fails without a fault, too`);
    else found += 1;
    console.log(
      result
        ? `${mutant.id}: seed ${result.seed}, ${result.seconds} s, ${result.violation}`
        : `${mutant.id}: not found`,
    );
  } finally {
    rmSync(bundle);
  }
}

/** Answers the first of these seeds that shows a violation, and that violation. */
function search(bundle, first, count) {
  const args = ['--seed', first, '--seeds', count, '--seconds', options.seconds, '--stop'].map(String);
  const { stdout, stderr, status } = spawnSync(process.execPath, [bundle, ...args], { encoding: 'utf8' });
  if (status !== 0 && status !== 1) throw new Error(stderr);
  const [, seed, violation] = /^seed (\d+): .*\n {2}(.*)$/m.exec(stdout) ?? [];
  if (seed === undefined) return undefined;
  return { seed: Number(seed), violation, seconds: /([\d.]+) s CPU/.exec(stdout)?.[1] };
}
