import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { exploration, SEED } from '../exploration.js';

const run = promisify(execFile);
const SIMULATE = join(import.meta.dirname, 'simulate.mjs');
const RUN_MUTANTS = join(import.meta.dirname, '../mutants/run.mjs');
const CORPUS = join(import.meta.dirname, 'corpus.json');
/** In CPU time: on a busy machine, the same seeds take longer. */
const SECONDS = exploration(20, 600);
/** Only a hang takes this long. */
const WITHIN = 60_000 * SECONDS;

// A child process that finds a violation exits with status 1, and the error that this throws contains its story.
async function output(program: string, ...args: string[]): Promise<string> {
  return (await run(process.execPath, [program, ...args])).stdout;
}

describe('simulated fleet', () => {
  it(
    'breaks no promise with fresh seeds',
    async () => {
      expect(await output(SIMULATE, '--seconds', String(SECONDS), '--seed', String(SEED))).toMatch(
        / 0 with violations/,
      );
    },
    WITHIN,
  );

  it(
    'breaks no promise with plans that once did',
    async () => {
      expect(await output(SIMULATE, '--plan', CORPUS)).toMatch(/ 0 with violations/);
    },
    WITHIN,
  );

  it(
    'repeats a run with the same seed',
    async () => {
      const hashes = async () => (await output(SIMULATE, '--seed', '7', '--seeds', '3', '--hash')).match(/^seed .*$/gm);
      expect(await hashes()).toEqual(await hashes());
    },
    WITHIN,
  );

  // Otherwise, a blind judge would never find anything.
  it(
    'finds a planted fault',
    async () => {
      expect(await output(RUN_MUTANTS, '--only', 'one-too-many')).toMatch(/^1 faults found, 0 not found/m);
    },
    WITHIN,
  );
});
