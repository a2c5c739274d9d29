import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { root, run } from './ensure-installed.mjs';

/**
 * The binary of this Node.js version, which the npm package `node` provides: its file and full version. Installs it if
 * it is missing.
 */
export function installedNode(version) {
  const folder = join(root, '.cache', `node-${version}`);
  const file = join(folder, 'node_modules/node/bin/node');
  if (!existsSync(file)) {
    mkdirSync(folder, { recursive: true });
    run('npm', ['install', '--prefix', folder, '--no-audit', '--no-fund', '--loglevel=error', `node@${version}`]);
  }
  return { file, version: spawnSync(file, ['--version']).stdout.toString().trim().slice(1) };
}
