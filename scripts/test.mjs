import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { commandLine } from './command-line.mjs';
import { ensureInstalled, root } from './ensure-installed.mjs';
import { ensureServers } from './ensure-servers.mjs';

const USAGE = `usage: npm test [-- options] [-- path …]

  path         only these tests. Default: everything
  --unit       only what needs no server, as npm run test:unit
  --coverage   with a table of what was run`;

const { values: options, positionals } = commandLine(USAGE, {
  options: { unit: { type: 'boolean', default: false }, coverage: { type: 'boolean', default: false } },
  allowPositionals: true,
});

// These folders hold the tests that take real time: on real servers, in several processes, or by a real clock.
const SLOW = '/test/(contract|redis|redlock|typeorm|zookeeper|memcached|failover|combined|sample)/';
// And these use all of the machine: leases of others would not be renewed in time beside them.
const CHAOS = '/test/chaos/';
const cores = availableParallelism();
const fast = ['--testPathIgnorePatterns', SLOW, CHAOS];
const slow = ['--testPathPatterns', SLOW];
const chaos = ['--testPathPatterns', CHAOS];

ensureInstalled();
if (!options.unit) ensureServers();

const results = mkdtempSync(join(tmpdir(), 'lock-tests-'));
const total = { passed: 0, failed: 0, skipped: 0 };
if (positionals.length > 0) jest('chosen', positionals);
else if (options.coverage) jest('all', ['--coverage', '--coverageReporters=text']);
else {
  // What fails fast comes first.
  jest('fast', fast);
  if (!options.unit) {
    // They wait more than they compute: with three workers two cores are still idle for a fifth of the time.
    jest('slow', slow, Math.ceil(1.5 * cores));
    jest('chaos', chaos);
  }
}
rmSync(results, { recursive: true, force: true });

console.log(`${total.passed} passed, ${total.failed} failed${total.skipped > 0 ? `, ${total.skipped} skipped` : ''}`);
process.exit(total.failed === 0 && total.passed > 0 ? 0 : 1);

function jest(group, args, workers = cores) {
  const outputFile = join(results, `${group}.json`);
  const { status } = spawnSync(
    process.execPath,
    [
      '--expose-gc',
      '--experimental-vm-modules',
      '--disable-warning=ExperimentalWarning',
      join(root, 'node_modules/jest/bin/jest.js'),
      '--json',
      `--outputFile=${outputFile}`,
      // Jest leaves one core free by default.
      `--maxWorkers=${workers}`,
      ...args,
    ],
    // Jest reports on its standard error; what it writes to its output is the table of the coverage.
    { cwd: root, stdio: ['ignore', options.coverage ? 'inherit' : 'ignore', 'inherit'] },
  );
  const report = JSON.parse(readFileSync(outputFile, 'utf8'));
  total.passed += report.numPassedTests;
  // A file that does not even load has no tests to count, and fails all the same; so does a coverage below its threshold.
  total.failed += report.numFailedTests + report.numRuntimeErrorTestSuites;
  if (status !== 0 && report.success) total.failed += 1;
  total.skipped += report.numPendingTests + report.numTodoTests;
}
