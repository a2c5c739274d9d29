import { execFile } from 'node:child_process';
import { rmSync } from 'node:fs';
import { constants } from 'node:os';
import { bundleWorld } from '../world/bundle.mjs';

/**
 * Runs the simulation with each fault.
 *
 * @param onResult Called with a fault, and with either the problem or how the fault was found.
 */
export async function findInSimulation(mutants, { search, seconds }, onResult) {
  const bundles = new Bundles();
  const sound = await bundles.make('sound');
  for (const mutant of mutants) {
    const bundle = await bundles.make('mutant', mutant);
    const known =
      search || mutant.seed === undefined ? undefined : await firstViolation(bundle, mutant.seed, 1, seconds);
    const result = known ?? (await firstViolation(bundle, 1, Number.MAX_SAFE_INTEGER, seconds));
    bundles.remove(bundle);
    if (result === undefined) onResult(mutant, `not found by the simulation within ${seconds} s`);
    else if (await firstViolation(sound, result.seed, 1, seconds))
      onResult(mutant, `seed ${result.seed} also fails without the fault`);
    else onResult(mutant, undefined, `seed ${result.seed}, ${result.seconds} s, ${result.violation}`);
  }
  bundles.removeAll();
}

/** The simulation's bundles. They are removed when this process ends, even after Ctrl-C. */
class Bundles {
  #paths = new Set();

  constructor() {
    process.once('exit', () => this.removeAll());
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
      process.once(signal, () => process.exit(128 + constants.signals[signal]));
    }
  }

  async make(kind, mutant) {
    const path = await bundleWorld(`${kind}-${process.pid}`, mutant ? [mutant] : []);
    this.#paths.add(path);
    return path;
  }

  remove(path) {
    rmSync(path, { force: true });
    this.#paths.delete(path);
  }

  removeAll() {
    for (const path of this.#paths) this.remove(path);
  }
}

/** Resolves to the first seed that causes a violation, and that violation. */
async function firstViolation(bundle, first, count, seconds) {
  const args = ['--seed', first, '--seeds', count, '--seconds', seconds, '--stop'].map(String);
  const { stdout, stderr, status } = await run([bundle, ...args]);
  if (status !== 0 && status !== 1) throw new Error(stderr);
  const [, seed, violation] = /^seed (\d+): .*\n {2}(.*)$/m.exec(stdout) ?? [];
  if (seed === undefined) return undefined;
  return { seed: Number(seed), violation, seconds: /([\d.]+) s CPU/.exec(stdout)?.[1] };
}

function run(args) {
  return new Promise((resolve) => {
    const onEnd = (error, stdout, stderr) => {
      process.off('exit', kill);
      resolve({ stdout, stderr, status: error ? error.code : 0 });
    };
    const child = execFile(process.execPath, args, { maxBuffer: Infinity }, onEnd);
    const kill = () => child.kill('SIGKILL');
    process.once('exit', kill);
  });
}
