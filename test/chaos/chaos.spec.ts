import { expect } from '@jest/globals';
import fc from 'fast-check';
import { type ChildProcess, execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { exploration, SEED } from '../exploration.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SECONDS = exploration(5, 60);
/** Allows for starting the servers, the quiet phase at the end, and a busy machine. */
const TIMEOUT = 600_000;
/** A busy machine completes few sections in that time. Then a longer run decides. */
const LONGEST = 16 * SECONDS;
const ARGS = ['--import', './chaos/typescript.mjs', 'chaos/run.mjs', '--no-control'];

const OTHER_SUBJECTS = [
  ...['memory', 'redlock', 'typeorm-version', 'typeorm-row', 'zookeeper', 'memcached', 'redis-cluster', 'failover'],
  'redis-node-redis',
  'combined',
  'several-keys-redis',
  'several-keys-version',
  'opposite-keys-redis',
  ...['typeorm-advisory-switchover', 'typeorm-version-switchover-postgres'],
];
const CONTROLS = ['naive', 'naive-limit', 'naive-deadlock', 'redlock-package'];

/**
 * Restricts a subject to these faults if all would take too long: an election or a switchover may take the whole run.
 */
const FAULTS: Readonly<Record<string, readonly string[]>> = {
  'redis-cluster': ['slot moved', 'worker paused', 'connections reset', 'CLIENT KILL'],
  'typeorm-advisory-switchover': ['graceful switchover'],
  'typeorm-version-switchover-postgres': ['cut-off standby promoted'],
};

// Runs `npm run chaos` for a few seconds. The same seed chooses the same faults.
describe('chaos', () => {
  const seed = String(SEED);
  const children = new Set<ChildProcess>();
  let library: CompiledLibrary;

  beforeAll(async () => {
    library = await compileLibrary();
  });
  afterAll(async () => {
    // Kill the processes of a test that timed out.
    for (const child of children) child.kill();
    await library.remove();
  });

  const run = async (subject: string, seconds = SECONDS): Promise<{ code: number; output: string }> => {
    const result = await runFor(subject, seconds);
    if (!result.output.includes('Too few sections') || seconds >= LONGEST) return result;
    const [, history = ''] = /The history is kept: (.+)/.exec(result.output) ?? [];
    await rm(dirname(history), { recursive: true });
    return run(subject, 4 * seconds);
  };
  const runFor = (subject: string, seconds: number) =>
    new Promise<{ code: number; output: string }>((resolve) => {
      const faults = (FAULTS[subject] ?? []).flatMap((fault) => ['--fault', fault]);
      const time = ['--minutes', String(seconds / 60), '--seed', seed];
      const args = [...ARGS, ...time, '--library', library.folder, '--provider', subject, ...faults];
      const child = execFile(process.execPath, args, { cwd: ROOT }, (_error, stdout, stderr) => {
        children.delete(child);
        resolve({ code: child.exitCode ?? -1, output: stdout + stderr });
      });
      children.add(child);
    });

  // The short form runs Redis, two other subjects chosen by the seed, and one control, which must be found guilty.
  const others = fc.sample(fc.shuffledSubarray(OTHER_SUBJECTS, { minLength: OTHER_SUBJECTS.length }), {
    numRuns: 1,
    seed: SEED,
  })[0]!;
  const tried = ['redis', ...others.slice(0, exploration(2, OTHER_SUBJECTS.length))];
  const rounds = pairs([...tried, ...CONTROLS.slice(0, exploration(1, CONTROLS.length))]);

  it.each(rounds)(
    'finds no violation in our locks, and finds controls guilty: %s, %s',
    async (...subjects) => {
      console.info(`Seed ${seed}`);
      const runs = await Promise.all(subjects.map((subject) => run(subject)));
      for (const { code, output } of runs) {
        expect({ code, seed, output }).toMatchObject({
          code: 0,
          output: expect.stringMatching(/No violation|Found guilty/),
        });
      }
    },
    TIMEOUT,
  );
});

/** Groups the list into pairs, because the machine can run two at a time. */
function pairs(list: readonly string[]): string[][] {
  return list.flatMap((_, index) => (index % 2 === 0 ? [list.slice(index, index + 2)] : []));
}
