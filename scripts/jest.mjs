import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { root } from './ensure-installed.mjs';
import { RunFolder } from './run-folder.mjs';

/** One run of the tests: starts Jest as often as it is asked to, and leaves no process and no file behind. */
export class JestRun {
  #folder = new RunFolder();
  #started = 0;
  /** Where the servers of this run share what is slow to make. */
  #templates = this.#folder.file('templates');

  /** @param config the path of a Jest configuration. Default: the one of this repository. */
  constructor({ config } = {}) {
    this.config = config;
    mkdirSync(this.#templates);
  }

  /**
   * Runs Jest with these arguments.
   * @param workers how many test files run at the same time
   * @param silent nothing is printed
   * @param without tests whose full names match are left out, and not counted as skipped. Patterns ignore case, as Jest does
   * @param leftOut tests that are left out by their names and counted as skipped, with the reason: `{ tests, reason }`
   * @param node the Node.js that runs them. Default: this one
   * @returns what became of each test file
   */
  async jest(
    args,
    {
      workers = availableParallelism(),
      env = {},
      silent = false,
      tables = false,
      without,
      leftOut = [],
      node = process.execPath,
    } = {},
  ) {
    const report = this.#folder.file(`report-${(this.#started += 1)}.json`);
    const options = ['--json', `--outputFile=${report}`, `--maxWorkers=${workers}`];
    if (this.config) options.push('--config', this.config);
    const names = [without, ...leftOut.map(({ tests }) => tests)].filter(Boolean).map(({ source }) => source);
    if (names.length > 0) options.push('--testNamePattern', `^(?!.*(${names.join('|')}))`);
    const start = performance.now();
    const flags = [
      ...['--expose-gc', '--experimental-vm-modules', '--disable-warning=ExperimentalWarning'],
      // Every core has a test file of its own, so V8's compiler and collector threads only compete with the tests (a fifth of their CPU time).
      '--single-threaded',
    ];
    const status = await this.#folder.run(
      node,
      [...flags, join(root, 'node_modules/jest/bin/jest.js'), ...options, ...args],
      // Jest prints its progress on standard error, and on standard output only the table of the coverage.
      {
        cwd: root,
        env: { LOCK_TESTS_TEMPLATES: this.#templates, ...env },
        stdio: ['ignore', tables ? 'inherit' : 'ignore', silent ? 'ignore' : 'inherit'],
      },
    );
    if (!existsSync(report)) throw new Error(`Jest ended with ${status} and without a report.`);
    const { success, testResults } = JSON.parse(readFileSync(report, 'utf8'));
    return {
      files: testResults.map((result) => outcomeOf(result, without, leftOut)),
      // The files may all be green, and Jest fails for another reason, such as a coverage below its threshold.
      failed: status !== 0 && success,
      seconds: (performance.now() - start) / 1_000,
    };
  }

  /**
   * Runs each failed file once more, alone: a test that fails beside others and passes alone depends on the speed of the machine.
   * Red twice is red. Red once is printed as unstable, and is a defect of the test or of the product all the same.
   *
   * @returns what is true of each file in the end
   */
  async repeatFailed(files, options) {
    const outcomes = [];
    for (const first of files) {
      if (first.failed === 0) {
        outcomes.push(first);
        continue;
      }
      console.log(`Once more, alone: ${first.file}`);
      const again = await this.jest(['--runTestsByPath', first.file], { ...options, workers: 1 });
      const second = again.files[0] ?? first;
      if (second.failed === 0) console.log(`unstable: ${first.file}: ${first.error}\n`);
      outcomes.push({ ...second, isUnstable: second.failed === 0 });
    }
    return outcomes;
  }

  /** Removes everything that the run made, and answers what the tests should have ended or removed themselves. */
  async end() {
    const leftBehind = this.#folder.leftBehind();
    await this.#folder.remove();
    return leftBehind;
  }
}

/** What became of one test file. A file that cannot be loaded has no tests, and counts as one that failed. */
function outcomeOf({ name, assertionResults: all, message, status, startTime, endTime }, without, leftOut) {
  const assertionResults = all.filter(({ fullName }) => !without?.test(fullName));
  const count = (...states) => assertionResults.filter((test) => states.includes(test.status)).length;
  const passed = count('passed');
  const failed = Math.max(count('failed'), status === 'failed' ? 1 : 0);
  return {
    file: relative(root, name),
    ...{ passed, failed, skipped: skippedIn(assertionResults, leftOut) },
    seconds: (endTime - startTime) / 1_000,
    error: failed > 0 ? firstError(assertionResults, message) : undefined,
  };
}

/** How often each of these reasons occurs. */
export function counted(reasons) {
  const counts = new Map();
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return counts;
}

/** The reason of each test that was not run: that of its kind, or `(not run: …)` in its name; undefined for one without a reason. */
function skippedIn(assertionResults, leftOut) {
  return assertionResults
    .filter(({ status }) => !['passed', 'failed'].includes(status))
    .map(({ fullName }) => {
      const kind = leftOut.find(({ tests }) => tests.test(fullName));
      return kind?.reason ?? /\(not run: ((?:[^()]|\([^()]*\))*)\)/.exec(fullName)?.[1];
    });
}

function firstError(assertionResults, message) {
  const test = assertionResults.find(({ status }) => status === 'failed');
  return test ? `${test.fullName}\n${test.failureMessages.join('\n')}` : message;
}
