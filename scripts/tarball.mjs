import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ensureInstalled, root } from './ensure-installed.mjs';
import { ensureBuilt } from './build.mjs';

/**
 * Packs the package as it would be published. Returns the path of the tarball in `folder`, the paths of its files, and
 * its size.
 */
export function packInto(folder) {
  ensureInstalled();
  ensureBuilt();
  const args = ['pack', '--ignore-scripts', '--json', '--loglevel=error', '--pack-destination', folder];
  const { status, stdout, stderr } = spawnSync('npm', args, { cwd: root, encoding: 'utf8' });
  if (status !== 0) throw new Error(`npm pack failed: ${stderr}`);
  // An array up to npm 11; since then, an object keyed by package name.
  const [{ filename, files, size, unpackedSize }] = Object.values(JSON.parse(stdout));
  return { tarball: join(folder, filename), files: files.map(({ path }) => path), size, unpackedSize };
}
