import { execFileSync } from 'node:child_process';
import { root } from './ensure-installed.mjs';

/** The commit under test, and whether any of these paths has changed since; unknown without git. */
export function commit(...paths) {
  return commitOf(root, ...paths);
}

/** The same for another clone of the repository. */
export function commitOf(folder, ...paths) {
  const git = (...args) =>
    execFileSync('git', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    const changed = git('status', '--porcelain', '--', ...paths);
    return git('rev-parse', '--short', 'HEAD') + (changed ? ' with changes' : '');
  } catch {
    return 'unknown';
  }
}
