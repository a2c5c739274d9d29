import { readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ensureInstalled, root, runTool } from './ensure-installed.mjs';
import { writeLuaModules } from './lua-modules.mjs';
import { removeUnreachableTypes } from './reachable-types.mjs';

/**
 * Builds the library into dist/ (modules, then bundles of them), and the sample shop, which imports it by its package
 * name, into sample-app/dist/.
 */
export function build() {
  buildLibrary();
  runTool('@nestjs/cli/bin/nest.js', ['build']);
}

/**
 * `dist/esm` and `dist/cjs` are what users load. The modules they are bundled from are for this repository's programs.
 */
export function buildLibrary() {
  rmSync(join(root, 'dist'), { recursive: true, force: true });
  runTool('typescript/bin/tsc', ['-p', 'tsconfig.build.json']);
  writeLuaModules(join(root, 'lib'), join(root, 'dist'));
  runTool('rollup/dist/bin/rollup', ['--config', 'scripts/rollup.config.mjs', '--silent']);
  removeUnreachableTypes();
}

// The inputs of the build, including folders: deleting a file changes the time of its folder.
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
/** The output that is written last. */
const LAST = 'sample-app/dist/main.js';

/** Builds if any input has changed since the last build. */
export function ensureBuilt() {
  if (Math.max(...SOURCES.map(changedAt)) < changedAt(LAST)) return;
  console.log('Building …');
  build();
}

/** The time of the last change of a file, or of any file in a folder; 0 if it doesn't exist. */
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
