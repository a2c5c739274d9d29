// The builds of this library that are measured: this one, and with `--baseline` another one beside it, in the same run.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { commitOf } from '../scripts/commit.mjs';
import { root } from '../scripts/ensure-installed.mjs';

export const OURS = 'nestjs-distributed-lock';
export const BASELINE = 'baseline';

const baseline = process.env.BENCH_BASELINE;
/** Builds may keep different records, so each has a namespace of its own. The namespaces are equally long. */
const BUILDS = {
  [OURS]: { folder: root, namespace: 'lock' },
  ...(baseline && { [BASELINE]: { folder: baseline, namespace: 'base' } }),
};

/** The names of the builds. */
export const builds = Object.keys(BUILDS);

/** The version of the baseline, by its name. */
export const baselineVersion = baseline ? { [BASELINE]: commitOf(baseline, 'lib') } : {};

/** What these entries of a build export, besides its main one, and its namespace. */
export async function load(build, ...entries) {
  const { folder, namespace } = BUILDS[build];
  const fileOf = (entry) => pathToFileURL(join(folder, 'dist/esm', `${entry}.js`)).href;
  const modules = await Promise.all(['index', ...entries].map((entry) => import(fileOf(entry))));
  return Object.assign({ namespace }, ...modules);
}
