import { join } from 'node:path';
import { JestRun } from '../../scripts/jest.mjs';

// A fixed seed, so that explorations find the same faults again.
const LOCK_TESTS_SEED = '7';

/**
 * Runs all specs without a fault, and then each fault's spec with the fault.
 *
 * @param onResult Called with a fault, and with either the problem or how the fault was found.
 */
export async function findInSpecs(mutants, onResult) {
  const run = new JestRun({ config: join(import.meta.dirname, 'jest.config.mjs') });
  const failedTests = async (specs, tests, env = {}) => {
    const names = ['--testNamePattern', tests.map(escaped).join('|')];
    const { files } = await run.jest(['--runTestsByPath', ...specs, ...names], {
      env: { LOCK_TESTS_SEED, ...env },
      silent: true,
    });
    return files.filter(({ failed }) => failed > 0);
  };

  const specs = [...new Set(mutants.map(({ killedBy }) => killedBy))];
  const redWithoutFault = await failedTests(
    specs,
    mutants.map(({ test }) => test),
  );
  for (const mutant of mutants) {
    const { killedBy, test } = mutant;
    const red = redWithoutFault.find(({ file }) => file === killedBy);
    const [result] = red ? [] : await failedTests([killedBy], [test], { MUTANT: JSON.stringify(mutant) });
    if (red) onResult(mutant, `${killedBy} also fails without the fault: ${red.error}`);
    else if (result === undefined) onResult(mutant, `"${test}" in ${killedBy} passes`);
    // Any other failure, such as a file that cannot be loaded, doesn't show that the test finds the fault.
    else if (!result.error.split('\n', 1)[0].includes(test))
      onResult(mutant, `${killedBy} fails for another reason: ${result.error}`);
    else onResult(mutant, undefined, `${killedBy}, ${result.seconds.toFixed(1)} s, ${result.error.split('\n', 1)[0]}`);
  }
  for (const each of await run.end()) console.log(`left behind: ${each}`);
}

function escaped(text) {
  return text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&');
}
