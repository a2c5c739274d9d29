import { execFileSync } from 'node:child_process';
import { root } from '../scripts/ensure-installed.mjs';

/** What is checked out here, and whether it was changed since; unknown without git. */
export function commit() {
  try {
    const args = ['describe', '--always', '--dirty', '--exclude', '*', '--abbrev=12'];
    return execFileSync('git', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return undefined;
  }
}
