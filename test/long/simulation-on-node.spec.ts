import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { installedNode } from '../../scripts/installed-node.mjs';

const run = promisify(execFile);
const SIMULATE = join(import.meta.dirname, '../world/simulate.mjs');

/** What has happened in the runs of some seeds, as hashes. */
async function traces(node: string): Promise<string[]> {
  const { stdout } = await run(node, [SIMULATE, '--seed', '1', '--seeds', '12', '--hash']);
  return stdout.match(/^seed .*$/gm) ?? [];
}

// A seed that fails in CI must fail on the machine of whoever repeats it.
it.each(['22', '24'])(
  'a seed does the same on Node.js %s as here',
  async (version) => {
    const here = await traces(process.execPath);
    expect(here).toHaveLength(12);
    expect(await traces(installedNode(version).file)).toEqual(here);
  },
  600_000,
);
