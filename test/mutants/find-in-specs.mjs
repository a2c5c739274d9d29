import { join } from 'node:path';
import { JestRun } from '../../scripts/jest.mjs';

// What explorations draw, so that they find the same again.
const LOCK_TESTS_SEED = '7';

/**
 * Runs the spec of each of these faults with it, after all of these specs without any.
 *
 * @param onResult called with a fault, and with what is wrong, or else how it was found
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
    if (red) onResult(mutant, `${killedBy} fails without a fault, too: ${red.error}`);
    else if (result === undefined) onResult(mutant, `"${test}" of ${killedBy} passes`);
    // Otherwise the file could not be loaded, which shows nothing.
    else if (!result.error.split('\n', 1)[0].includes(test))
      onResult(mutant, `${killedBy} fails in another way: ${result.error}`);
    else onResult(mutant, undefined, `${killedBy}, ${result.seconds.toFixed(1)} s, ${result.error.split('\n', 1)[0]}`);
  }
  for (const each of await run.end()) console.log(`left behind: ${each}`);
}

function escaped(text) {
  return text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&');
}
