import { join } from 'node:path';
import { root } from '../../scripts/ensure-installed.mjs';
import { unpacked } from './debian.mjs';
import { versionIn } from './rows.mjs';

export const CACHE = join(root, '.cache/servers');

/** The folder of a server with its whole version, for LOCK_TEST_ROOT. It is unpacked there unless it is there in the version of its row. */
export async function rootOf(row) {
  const folder = join(CACHE, row.name);
  const isOfRow = (version) => `${version}.`.startsWith(`${row.version}.`);
  await unpacked(folder, row, async () => isOfRow(await versionIn(folder, row)));
  const version = await versionIn(folder, row);
  // sid moves.
  if (!isOfRow(version)) console.log(`${row.suite} has ${row.server} ${version} now, no longer ${row.version}.`);
  return { folder, version };
}
