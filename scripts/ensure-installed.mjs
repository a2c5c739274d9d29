import { spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root of the repository. */
export const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Runs a command in the repository, and exits this process if it fails. */
export function run(command, args, options = {}) {
  const result = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  if (result.error) throw result.error;
  if (result.status !== 0) process.exit(result.status ?? 1);
}

/** Runs a tool that npm has installed. */
export function runTool(entry, args, options) {
  run(process.execPath, [join(root, 'node_modules', entry), ...args], options);
}

/** Installs a folder's dependencies unless they match its lock file. Uses only Node itself. */
export function ensureInstalled(folder = root) {
  const lockFile = join(folder, 'package-lock.json');
  // npm writes this file last. It is older than a lock file that has changed since, and missing after a broken install.
  const marker = join(folder, 'node_modules', '.package-lock.json');
  if (existsSync(marker) && statSync(marker).mtimeMs >= statSync(lockFile).mtimeMs) return;
  console.log(`Installing dependencies${folder === root ? '' : ` of ${relative(root, folder)}`} (npm ci) …`);
  // A package that counts its installations would leave its list in the temporary folder.
  const env = { ...process.env, DO_NOT_TRACK: '1' };
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: folder, env });
}
