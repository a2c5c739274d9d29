import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../../scripts/ensure-installed.mjs';

const folder = import.meta.dirname;

/** Whether to measure the other libraries too. Installs them if they are missing. BENCH_WITHOUT_PEERS=1 leaves them out. */
export function ensurePeers() {
  if (process.env.BENCH_WITHOUT_PEERS) return false;
  // npm writes this file last, so it is older than a lock file that has changed since, and missing after a broken install.
  const marker = join(folder, 'node_modules/.package-lock.json');
  if (existsSync(marker) && statSync(marker).mtimeMs >= statSync(join(folder, 'package-lock.json')).mtimeMs)
    return true;
  console.log('Installing the libraries to compare with …');
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: folder });
  return true;
}
