import { existsSync } from 'node:fs';
import { run } from '../../scripts/ensure-installed.mjs';

/** Whether to measure the other libraries too. Installs them if they are missing. BENCH_WITHOUT_PEERS=1 leaves them out. */
export function ensurePeers() {
  if (process.env.BENCH_WITHOUT_PEERS) return false;
  const cwd = import.meta.dirname;
  if (['murlock', 'redlock4'].every((name) => existsSync(`${cwd}/node_modules/${name}`))) return true;
  console.log('Installing the libraries to compare with …');
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd });
  return true;
}
