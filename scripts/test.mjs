import { randomInt } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { ensureBuilt } from './build.mjs';
import { commandLine } from './command-line.mjs';
import { ensureInstalled } from './ensure-installed.mjs';
import { ensureServers } from './ensure-servers.mjs';
import { counted, JestRun } from './jest.mjs';

const USAGE = `usage: npm test [-- options] [-- path …]

  path           only these tests. Default: everything
  --unit         only the tests that need no server, as npm run test:unit
  --long         explorations and soaks in their long form, as npm run test:long
  --coverage     with a table of the lines that were run
  --seed 7       decides what explorations draw, so that a failure can be repeated. Default: a new one
  --slowest 10   prints the files that took the longest
  --config file  another Jest configuration`;

const { values: options, positionals: paths } = commandLine(USAGE, {
  options: {
    unit: { type: 'boolean', default: false },
    long: { type: 'boolean', default: false },
    coverage: { type: 'boolean', default: false },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
    slowest: { type: 'string', default: '0' },
    config: { type: 'string' },
  },
  allowPositionals: true,
});

// These folders hold the tests that take real time: on real servers, in several processes, or by a real clock.
const SERVERS =
  '/test/(contract|redis|redlock|sql|typeorm|zookeeper|memcached|failover|combined|sample|scripts|chaos|docs|long|cli/servers)/';
// The kit over several real servers at a time: each case waits for a fail-over's window, or for two servers. Its fast form runs in memory.
const LONG = '/test/long/';
const cores = availableParallelism();

ensureInstalled();
if (!options.unit) ensureServers();
// Otherwise several tests would build at the same time.
if (!options.unit && paths.length === 0) ensureBuilt();

const run = new JestRun(options);
const env = { LOCK_TESTS_SEED: options.seed, ...(options.long && { LOCK_TESTS_LONG: '1' }) };
console.log(`seed ${options.seed}`);
const files = new Map();
const problems = [];

if (options.coverage) await group('all', [...paths, '--coverage', '--coverageReporters=text'], { tables: true });
else if (paths.length > 0) await group('chosen', paths);
else {
  // The fast tests come first, so a mistake shows after seconds.
  await group('fast', ['--testPathIgnorePatterns', SERVERS]);
  // These tests wait more than they compute, so the cores carry more files than there are cores.
  if (!options.unit)
    await group(
      'servers',
      ['--testPathPatterns', SERVERS, ...(options.long ? [] : ['--testPathIgnorePatterns', LONG])],
      { workers: 2 * cores + 1 },
    );
}
const all = await run.repeatFailed([...files.values()], { env });
for (const each of await run.end()) problems.push(`left behind: ${each}`);

const slowest = [...all].sort((a, b) => b.seconds - a.seconds).slice(0, Number(options.slowest));
for (const { file, seconds } of slowest) console.log(`${seconds.toFixed(1).padStart(6)} s  ${file}`);
const sum = (field) => all.reduce((total, outcome) => total + outcome[field], 0);
const skipped = all.flatMap((outcome) => outcome.skipped);
for (const [reason, count] of counted(skipped)) console.log(`${String(count).padStart(6)} skipped: ${reason}`);
for (const { file, skipped: reasons } of all) {
  if (reasons.includes(undefined)) problems.push(`skipped without a reason: ${file}`);
}
for (const problem of problems) console.log(problem);
const failed = sum('failed') + problems.length;
console.log(`${sum('passed')} passed, ${failed} failed${skipped.length > 0 ? `, ${skipped.length} skipped` : ''}`);
process.exit(failed === 0 && sum('passed') > 0 ? 0 : 1);

async function group(name, args, terms) {
  const result = await run.jest(args, { env, ...terms });
  for (const outcome of result.files) files.set(outcome.file, outcome);
  if (result.failed) problems.push(`${name}: Jest failed, although every file passed`);
  console.log(`${name}: ${result.files.length} files in ${Math.round(result.seconds)} s\n`);
}
