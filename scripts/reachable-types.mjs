import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { root } from './ensure-installed.mjs';
import { packageEntries } from './package-entries.mjs';

const IMPORTED = /(?:\bfrom|\bimport\(|\bimport)\s*['"](\.[^'"]+)\.js['"]/g;

/**
 * Removes the declarations in dist/ that aren't reachable from any entry of the package: tsc writes one for every
 * module, but a user's compiler never reads these.
 */
export function removeUnreachableTypes() {
  const reachable = new Set();
  const visit = (file) => {
    if (reachable.has(file)) return;
    reachable.add(file);
    const imports = readFileSync(file, 'utf8').matchAll(IMPORTED);
    for (const [, path] of imports) visit(join(dirname(file), `${path}.d.ts`));
  };
  for (const { types } of packageEntries()) visit(join(root, types));
  const dist = join(root, 'dist');
  const declarations = readdirSync(dist, { recursive: true }).filter((file) => file.endsWith('.d.ts'));
  for (const file of declarations.map((each) => join(dist, each))) if (!reachable.has(file)) rmSync(file);
}
