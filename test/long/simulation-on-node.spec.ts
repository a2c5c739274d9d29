import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { installedNode } from '../../scripts/installed-node.mjs';

const run = promisify(execFile);
const SIMULATE = join(import.meta.dirname, '../world/simulate.mjs');

/** Returns the runs of some seeds as hashes. */
async function traces(node: string): Promise<string[]> {
  const { stdout } = await run(node, [SIMULATE, '--seed', '1', '--seeds', '12', '--hash']);
  return stdout.match(/^seed .*$/gm) ?? [];
}

// A seed that fails in CI must also fail when a developer repeats it.
it.each(['22', '24'])(
  'a seed produces the same run on Node.js %s',
  async (version) => {
    const here = await traces(process.execPath);
    expect(here).toHaveLength(12);
    expect(await traces(installedNode(version).file)).toEqual(here);
  },
  600_000,
);
