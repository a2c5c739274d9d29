import { existsSync } from 'node:fs';
import { run } from '../../scripts/ensure-installed.mjs';

/** Installs the other libraries, unless they are there. */
export function ensurePeers() {
  const cwd = import.meta.dirname;
  if (['murlock', 'redlock4'].every((name) => existsSync(`${cwd}/node_modules/${name}`))) return;
  console.log('Installing the libraries to compare with …');
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], { cwd });
}
