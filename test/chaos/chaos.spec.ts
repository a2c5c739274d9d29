import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { type ChildProcess, execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { exploration, SEED } from '../exploration.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SECONDS = exploration(5, 60);
/** With servers that start, a drain, and a machine that does other things. */
const PATIENCE = 600_000;
/** A machine that is busy with other things gets through few sections in that time. Then a longer run decides. */
const LONGEST = 16 * SECONDS;
const ARGS = ['--import', './chaos/typescript.mjs', 'chaos/run.mjs', '--no-control'];

const OTHERS = [
  ...['memory', 'redlock', 'typeorm-version', 'typeorm-row', 'zookeeper', 'memcached', 'redis-cluster', 'failover'],
  'combined',
];
const CONTROLS = ['naive', 'redlock-package'];

/** Where all of them take longer: an election may take up the whole run. */
const FAULTS: Readonly<Record<string, readonly string[]>> = {
  'redis-cluster': ['slot moved', 'worker paused', 'wire reset', 'CLIENT KILL'],
};

// The program that `npm run chaos` runs for minutes, for some seconds. It prints its seed; the same seed draws the same faults.
describe('under faults', () => {
  const seed = String(SEED);
  const children = new Set<ChildProcess>();
  let library: CompiledLibrary;

  beforeAll(async () => {
    library = await compileLibrary();
  });
  afterAll(async () => {
    // Of a test that has run out of time.
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

  // The short form tries Redis, two others, which the seed draws, and one control, which must be found guilty.
  const others = fc.sample(fc.shuffledSubarray(OTHERS, { minLength: OTHERS.length }), { numRuns: 1, seed: SEED })[0]!;
  const tried = ['redis', ...others.slice(0, exploration(2, OTHERS.length))];
  const rounds = pairs([...tried, ...CONTROLS.slice(0, exploration(1, CONTROLS.length))]);

  it.each(rounds)(
    'our locks keep what they promise, and the same harness finds out those that cannot: %s, %s',
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
    PATIENCE,
  );
});

/** As many at a time as the machine has time for. */
function pairs(list: readonly string[]): string[][] {
  return list.flatMap((_, index) => (index % 2 === 0 ? [list.slice(index, index + 2)] : []));
}
