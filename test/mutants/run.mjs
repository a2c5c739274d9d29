import { commandLine, refuse } from '../../scripts/command-line.mjs';
import { ensureInstalled } from '../../scripts/ensure-installed.mjs';
import { ensureServers, NEEDED } from '../../scripts/ensure-servers.mjs';
import { findInSimulation } from './find-in-simulation.mjs';
import { findInSpecs } from './find-in-specs.mjs';
import { MUTANTS } from './index.mjs';
import { SIMULATED } from './simulated.mjs';

const USAGE = `usage: npm run mutants -- [options]

Plants faults in the sources, one at a time, and checks that the simulation or a spec finds each one.
The files in lib/ are not changed.

  --only id,id    plants only these faults
  --search        lets the simulation search for each fault, ignoring the known seeds
  --seconds 60    searches for each fault for up to this many seconds of CPU time`;

const { values: options } = commandLine(USAGE, {
  options: {
    only: { type: 'string' },
    search: { type: 'boolean', default: false },
    seconds: { type: 'string', default: '60' },
  },
});
const only = options.only?.split(',');
const unknown = only?.filter((id) => MUTANTS.every((mutant) => mutant.id !== id)) ?? [];
if (unknown.length > 0) refuse(`There is no such fault: ${unknown.join(', ')}.`);
const chosen = (mutants) => mutants.filter(({ id }) => only?.includes(id) ?? true);

const simulated = chosen(SIMULATED).filter(({ seed }) => options.search || seed !== undefined);
const inSpecs = options.search ? [] : chosen(MUTANTS).filter(({ killedBy }) => killedBy !== undefined);
const problems = [];
const onResult = (mutant, problem, how) => {
  if (problem !== undefined) problems.push({ mutant, problem });
  console.log(`${mutant.id}: ${problem ?? how}`);
};

ensureInstalled();
if (simulated.length > 0) await findInSimulation(simulated, options, onResult);
if (inSpecs.length > 0) {
  ensureServers(NEEDED);
  await findInSpecs(inSpecs, onResult);
}
const missed = new Set(problems.map(({ mutant }) => mutant.id));
const found = new Set([...simulated, ...inSpecs].map(({ id }) => id).filter((id) => !missed.has(id)));
for (const { mutant, problem } of problems) console.log(`NOT FOUND: ${mutant.id}, ${problem}: ${mutant.breaks}`);
console.log(`${found.size} faults found, ${missed.size} not found`);
process.exit(missed.size === 0 && found.size > 0 ? 0 : 1);
