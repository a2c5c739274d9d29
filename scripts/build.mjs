import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ensureInstalled, root, runTool } from './ensure-installed.mjs';
import { writeLuaModules } from './lua-modules.mjs';
import { removeUnreachableTypes } from './reachable-types.mjs';

/** Builds the library into dist/ (modules, then bundles of them) and the sample shop, which imports it by its package name, into sample-app/dist/. */
export function build() {
  buildLibrary();
  runTool('@nestjs/cli/bin/nest.js', ['build']);
}

/** `dist/esm` and `dist/cjs` are what users load; the modules that they are made of are for programs of this repository. */
export function buildLibrary() {
  rmSync(join(root, 'dist'), { recursive: true, force: true });
  runTool('typescript/bin/tsc', ['-p', 'tsconfig.build.json']);
  writeLuaModules(join(root, 'lib'), join(root, 'dist'));
  runTool('rollup/dist/bin/rollup', ['--config', 'scripts/rollup.config.mjs', '--silent']);
  removeUnreachableTypes();
}

// What the build reads; folders too, since a file that was deleted leaves its mark there.
const SOURCES = [
  'lib',
  'sample-app/src',
  'tsconfig.json',
  'tsconfig.build.json',
  'scripts/lua-modules.mjs',
  'scripts/reachable-types.mjs',
  'scripts/rollup.config.mjs',
  'sample-app/tsconfig.json',
  'nest-cli.json',
  'package-lock.json',
];
/** Written last. */
const LAST = 'sample-app/dist/main.js';

/** Builds unless nothing has changed since. */
export function ensureBuilt() {
  if (Math.max(...SOURCES.map(changedAt)) < changedAt(LAST)) return;
  console.log('Building …');
  build();
}

/** When a file, or the last one in a folder, was changed; 0 when it is not there. */
function changedAt(path) {
  const at = join(root, path);
  const stats = statSync(at, { throwIfNoEntry: false });
  if (!stats?.isDirectory()) return stats?.mtimeMs ?? 0;
  const entries = readdirSync(at, { recursive: true });
  return Math.max(stats.mtimeMs, ...entries.map((entry) => statSync(join(at, entry)).mtimeMs));
}

if (import.meta.filename === process.argv[1]) {
  ensureInstalled();
  build();
}
