import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { ensureBuilt } from './build.mjs';
import { commandLine } from './command-line.mjs';
import { ensureInstalled, root } from './ensure-installed.mjs';
import { ensureServers, NEEDED } from './ensure-servers.mjs';
import { recordUnstable, RECORDS } from './instability.mjs';
import { counted, JestRun } from './jest.mjs';
import { CHOSEN, LONG, NOT_CHOSEN, SERVERS } from './suites.mjs';

const USAGE = `usage: npm test [-- options] [-- path …]

  path            runs only these tests. Default: the suite that scripts/suites.mjs chooses
  --all           runs every test, like npm run test:all
  --unit          runs only the tests that need no server, like npm run test:unit
  --long          runs every test, with explorations and soaks in their long form, like npm run test:long
  --coverage      runs every test, and prints a coverage table
  --seed 7        determines all random choices, so that a failure can be repeated. Default: random
  --slowest 10    prints the slowest files
  --config file   uses another Jest configuration
  --records file  where to record unstable files. Default: .cache/unstable.jsonl`;

const { values: options, positionals: paths } = commandLine(USAGE, {
  options: {
    all: { type: 'boolean', default: false },
    unit: { type: 'boolean', default: false },
    long: { type: 'boolean', default: false },
    coverage: { type: 'boolean', default: false },
    seed: { type: 'string', default: String(randomInt(2 ** 31)) },
    slowest: { type: 'string', default: '0' },
    config: { type: 'string' },
    records: { type: 'string', default: RECORDS },
  },
  allowPositionals: true,
});

const cores = availableParallelism();

ensureInstalled();
const isAll = options.all || options.long || options.coverage;
if (!options.unit) ensureServers(isAll || paths.length > 0 ? undefined : NEEDED);
// Otherwise, several tests would build at the same time. The tests for every change need no build.
if (isAll && !options.unit && paths.length === 0) ensureBuilt();

const run = new JestRun(options);
const env = { LOCK_TESTS_SEED: options.seed, ...(options.long && { LOCK_TESTS_LONG: '1' }) };
console.log(`seed ${options.seed}`);
const problems = [];

const pattern = leftOut();
const files = paths.length > 0 || pattern === undefined ? paths : ['--testPathIgnorePatterns', pattern];
const coverage = options.coverage ? ['--coverage', '--coverageReporters=text'] : [];
const result = await run.jest([...files, ...coverage], {
  env,
  tables: options.coverage,
  // Tests on servers wait more than they compute, so more files than cores run at the same time.
  workers: options.unit || paths.length > 0 ? cores : 3 * cores + 1,
});
console.log(`${result.files.length} files in ${Math.round(result.seconds)} s\n`);
if (result.failed) problems.push('Jest failed, although every file passed');
const missing = CHOSEN.filter((path) => !existsSync(join(root, path)));
for (const path of missing) problems.push(`named in scripts/suites.mjs, but missing: ${path}`);
const all = await run.repeatFailed(result.files, { env });
for (const each of await run.end()) problems.push(`left behind: ${each}`);

const slowest = [...all].sort((a, b) => b.seconds - a.seconds).slice(0, Number(options.slowest));
for (const { file, seconds } of slowest) console.log(`${seconds.toFixed(1).padStart(6)} s  ${file}`);
const sum = (field) => all.reduce((total, outcome) => total + outcome[field], 0);
const skipped = all.flatMap((outcome) => outcome.skipped);
for (const [reason, count] of counted(skipped)) console.log(`${String(count).padStart(6)} skipped: ${reason}`);
for (const { file, skipped: reasons } of all) {
  if (reasons.includes(undefined)) problems.push(`skipped without a reason: ${file}`);
}
const unstable = all.filter(({ isUnstable }) => isUnstable).map(({ file }) => file);
for (const line of recordUnstable(unstable, options.records)) console.log(line);
for (const problem of problems) console.log(problem);
const failed = sum('failed') + problems.length;
console.log(`${sum('passed')} passed, ${failed} failed${skipped.length > 0 ? `, ${skipped.length} skipped` : ''}`);
process.exit(failed === 0 && sum('passed') > 0 ? 0 : 1);

/** The files that this run excludes, as a Jest pattern. */
function leftOut() {
  if (options.unit) return SERVERS;
  if (options.long || options.coverage) return undefined;
  return options.all ? LONG : NOT_CHOSEN;
}
