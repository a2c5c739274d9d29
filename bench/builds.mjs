// The measured builds of this library: the current one, and with `--baseline` a second one in the same run.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { commitOf } from '../scripts/commit.mjs';
import { root } from '../scripts/ensure-installed.mjs';

export const OURS = 'nestjs-distributed-lock';
export const BASELINE = 'baseline';

const baseline = process.env.BENCH_BASELINE;
/** Builds may store different records, so each has its own namespace. The namespaces have equal lengths. */
const BUILDS = {
  [OURS]: { folder: root, namespace: 'lock' },
  ...(baseline && { [BASELINE]: { folder: baseline, namespace: 'base' } }),
};

/** The names of the builds. */
export const builds = Object.keys(BUILDS);

/** The version of the baseline, by its name. */
export const baselineVersion = baseline ? { [BASELINE]: commitOf(baseline, 'lib') } : {};

/** What a build's main entry and these entries export, and its namespace. */
export async function load(build, ...entries) {
  const { folder, namespace } = BUILDS[build];
  const fileOf = (entry) => pathToFileURL(join(folder, 'dist/esm', `${entry}.js`)).href;
  const modules = await Promise.all(['index', ...entries].map((entry) => import(fileOf(entry))));
  return Object.assign({ namespace }, ...modules);
}
