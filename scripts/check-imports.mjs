import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { ensureInstalled, root } from './ensure-installed.mjs';

/*
 * Fails if files of lib/ import each other in a circle, type imports included: the linter does not see those.
 * `node scripts/check-imports.mjs --floors lib/providers/redis` prints how many files of a folder lie on top of each other instead.
 */
ensureInstalled();
const { default: ts } = await import('typescript');
const lib = join(root, 'lib');
const files = readdirSync(lib, { recursive: true })
  .filter((file) => file.endsWith('.ts'))
  .map((file) => join(lib, file));
const imports = new Map(files.map((file) => [file, importsOf(file)]));

const at = process.argv.indexOf('--floors');
if (at > 0) {
  const folder = resolve(process.argv[at + 1]);
  const heights = files.filter((file) => file.startsWith(`${folder}/`)).map((file) => [floorOf(file, folder), file]);
  for (const [floor, file] of heights.sort(([a], [b]) => b - a)) console.log(floor, relative(root, file));
} else {
  const circle = files.map((file) => circleThrough(file)).find((found) => found !== undefined);
  if (circle)
    console.error(`Files import each other in a circle: ${circle.map((file) => relative(root, file)).join(' -> ')}`);
  process.exitCode = circle ? 1 : 0;
}

function importsOf(file) {
  return ts
    .preProcessFile(readFileSync(file, 'utf8'))
    .importedFiles.map(({ fileName }) => fileName)
    .filter((name) => name.startsWith('.'))
    .map((name) => join(dirname(file), name.replace(/\.js$/, '.ts')));
}

/** The shortest way from a file back to itself. */
function circleThrough(start) {
  const cameFrom = new Map();
  const queue = [start];
  for (const file of queue) {
    for (const next of imports.get(file) ?? []) {
      if (next === start) return [...wayTo(file, cameFrom), start];
      if (cameFrom.has(next)) continue;
      cameFrom.set(next, file);
      queue.push(next);
    }
  }
  return undefined;
}

function wayTo(file, cameFrom) {
  const before = cameFrom.get(file);
  return before === undefined ? [file] : [...wayTo(before, cameFrom), file];
}

/** 1 for a file that imports nothing of the folder, else one more than the highest that it imports. */
function floorOf(file, folder, path = []) {
  const below = (imports.get(file) ?? []).filter((next) => next.startsWith(`${folder}/`) && !path.includes(next));
  return 1 + Math.max(0, ...below.map((next) => floorOf(next, folder, [...path, file])));
}
