import { execFileSync } from 'node:child_process';
import { root } from './ensure-installed.mjs';

/** The commit that is measured or tested under faults, and whether any of these paths was changed since; unknown without git. */
export function commit(...paths) {
  return commitOf(root, ...paths);
}

/** The same of another clone of the repository. */
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
