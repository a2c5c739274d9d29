import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { root } from './ensure-installed.mjs';
import { RunFolder } from './run-folder.mjs';

/** One run of the tests: starts Jest any number of times, and leaves no process and no file behind. */
export class JestRun {
  #folder = new RunFolder();
  #started = 0;
  /** Where this run's servers share what is slow to create. */
  #templates = this.#folder.file('templates');

  /** @param config the path of a Jest configuration. Default: the repository's own. */
  constructor({ config } = {}) {
    this.config = config;
    mkdirSync(this.#templates);
  }

  /**
   * Runs Jest with these arguments.
   * @param workers how many test files run at the same time
   * @param silent whether to print nothing
   * @param without tests whose full names match are excluded, and not counted as skipped. Patterns ignore case, like
   * Jest's
   * @param leftOut tests that are excluded by name and counted as skipped, with the reason: `{ tests, reason }`
   * @param node the Node.js binary that runs them. Default: this one
   * @returns the outcome of each test file
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
      // Each core runs its own test file, so V8's compiler and collector threads only compete with the tests (for a
      // fifth of their CPU time).
      '--single-threaded',
    ];
    const status = await this.#folder.run(
      node,
      [...flags, join(root, 'node_modules/jest/bin/jest.js'), ...options, ...args],
      // Jest prints its progress to standard error, and only the coverage table to standard output.
      {
        cwd: root,
        env: { LOCK_TESTS_TEMPLATES: this.#templates, ...env },
        stdio: ['ignore', tables ? 'inherit' : 'ignore', silent ? 'ignore' : 'inherit'],
      },
    );
    if (!existsSync(report)) throw new Error(`Jest exited with ${status} and wrote no report.`);
    const { success, testResults } = JSON.parse(readFileSync(report, 'utf8'));
    return {
      files: testResults.map((result) => outcomeOf(result, without, leftOut)),
      // All files may pass and Jest may still fail, for example if the coverage is below its threshold.
      failed: status !== 0 && success,
      seconds: (performance.now() - start) / 1_000,
    };
  }

  /**
   * Runs each failed file once more, alone: a test that fails alongside others and passes alone depends on the speed of
   * the machine. If it fails again, it has failed. If not, it is printed as unstable, which is still a bug in the test
   * or in the product.
   *
   * @returns the final outcome of each file
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

  /** Removes everything that the run created, and returns what the tests should have ended or removed themselves. */
  async end() {
    const leftBehind = this.#folder.leftBehind();
    await this.#folder.remove();
    return leftBehind;
  }
}

/** The outcome of one test file. A file that can't be loaded has no tests, and counts as a failed test. */
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

/**
 * The reason why each test was skipped: the one for its kind, or the `(not run: …)` in its name; undefined if it has
 * none.
 */
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
