import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { ensureInstalled, root, runTool } from './ensure-installed.mjs';

/** Builds the library into dist/ and the sample shop, which imports it by its package name, into sample-app/dist/. */
export function build() {
  rmSync(join(root, 'dist'), { recursive: true, force: true });
  runTool('typescript/bin/tsc', ['-p', 'tsconfig.build.json']);
  runTool('@nestjs/cli/bin/nest.js', ['build']);
}

if (import.meta.filename === process.argv[1]) {
  ensureInstalled();
  build();
}
