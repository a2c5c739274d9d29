import { build } from 'esbuild';
import { mkdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { luaModule } from '../../scripts/lua-modules.mjs';
import { planted } from '../mutants/index.mjs';

const root = join(import.meta.dirname, '../..');
// In the repository, because the bundle imports packages.
const folder = join(root, 'node_modules/.cache/world');

/**
 * Bundles the simulation with the sources of the library. Resolves to the path of the bundle.
 *
 * @param patches faults to plant in the sources, see test/mutants/
 */
export async function bundleWorld(name, patches = []) {
  mkdirSync(folder, { recursive: true });
  const outfile = join(folder, `${name}.mjs`);
  const applied = new Set();
  const patched = async (path) => {
    let text = await readFile(path, 'utf8');
    for (const patch of patches) {
      if (relative(root, path) !== patch.file) continue;
      text = planted(patch, text);
      applied.add(patch);
    }
    return text;
  };
  await build({
    entryPoints: [join(import.meta.dirname, 'main.ts')],
    outfile,
    bundle: true,
    packages: 'external',
    platform: 'node',
    format: 'esm',
    target: 'node20',
    sourcemap: 'inline',
    logLevel: 'silent',
    tsconfigRaw: { compilerOptions: { experimentalDecorators: true, target: 'ES2023', useDefineForClassFields: true } },
    plugins: [
      {
        name: 'sources',
        setup(bundler) {
          bundler.onResolve({ filter: /\.lua\.js$/ }, ({ path, resolveDir }) => ({
            path: join(resolveDir, path.slice(0, -'.js'.length)),
          }));
          bundler.onLoad({ filter: /\.lua$/ }, async ({ path }) => ({
            contents: luaModule(await patched(path)),
            loader: 'js',
          }));
          bundler.onLoad({ filter: /\/lib\/.*\.ts$/ }, async ({ path }) => ({
            contents: await patched(path),
            loader: 'ts',
          }));
        },
      },
    ],
  });
  for (const patch of patches) {
    if (!applied.has(patch)) throw new Error(`The simulation does not load ${patch.file}.`);
  }
  return outfile;
}
